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

/// Returns the error of device_work() without the launches. Where blocks have one size there is
/// none.
Status check_blocks(std::span<const Request> requests);

/// Queues the launches of device_work() in `stream`, whose context is current. `cancelled` is as
/// in gpu::Work.
Status launch_device_work(std::span<const Request> requests, const gpu::StopWords* cancelled,
                          CUstream stream);

} // namespace whorl
