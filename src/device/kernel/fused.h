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

/// Range of elements, the same in every block.
struct Slice {
  std::size_t begin = 0, count = 0;
};
/// Returns part `index` of `of` parts of a request's blocks: equal parts of whole vector accesses,
/// none so small that a kernel is not worth it; parts that are left over are empty.
Slice slice_of(const Request& request, std::size_t index, std::size_t of) noexcept;

/// Returns the launches that carry out a slice of one collective of all ranks, whose memory one
/// device reaches; `requests` are those of all ranks, equal but for the buffers. At most
/// gpu::kMaxBuffers ranks.
std::vector<gpu::Work> device_work(std::span<const Request> requests, Slice slice);

/// Queues the launches of device_work() in `stream`, whose context is current. `cancelled` is a
/// word as in gpu::Work.
Status launch_device_work(std::span<const Request> requests, Slice slice,
                          const std::uint32_t* cancelled, CUstream stream);

} // namespace whorl
