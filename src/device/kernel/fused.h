#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/request.h"
#include "gpu/work.h"

namespace whorl {

/// Returns the launches that carry out one collective of all ranks, whose memory one device
/// reaches; `requests` are those of all ranks, equal but for the buffers and the places of blocks.
/// At most gpu::kMaxBuffers ranks. An error names two ranks whose numbers of elements differ.
Result<std::vector<gpu::Work>> device_work(std::span<const Request> requests);

/// Queues `works`, which device_work() has made of requests like `request`, in `stream`, whose
/// context is current. `cancelled` is as in gpu::Work.
Status launch_device_work(const Request& request, std::span<gpu::Work> works,
                          const gpu::StopWords* cancelled, CUstream stream);

} // namespace whorl
