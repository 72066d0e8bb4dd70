#pragma once

#include <cuda.h>

#include "base/status.h"
#include "engine/request.h"

namespace whorl {

/// WHORL_DEVICE_ALGO: who carries out collectives on device memory.
enum class DeviceWay { kAny, kFused, kSchedule, kHost };
Result<DeviceWay> device_way();

/// Whether a kernel in `context` reaches the buffers that `rank` has in a request.
bool reaches(CUcontext context, const Request& request, int rank, int nranks);

} // namespace whorl
