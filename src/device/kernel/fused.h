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

/// Elements of every block.
struct Slice {
  std::size_t begin = 0, count = 0;
};
/// Part `index` of `of` of a request's blocks: the parts are alike, whole vectors and no smaller
/// than what a kernel is worth; those that are left over are empty.
Slice slice_of(const Request& request, std::size_t index, std::size_t of) noexcept;

/// The launches that carry out a slice of one collective of all ranks, whose memory one device
/// reaches; `requests` are those of all ranks, alike but for the buffers. At most gpu::kMaxBuffers
/// ranks.
std::vector<gpu::Work> device_work(std::span<const Request> requests, Slice slice);

/// Queues them in `stream`; its context is current. `cancelled` as in gpu::Work.
Status launch_device_work(std::span<const Request> requests, Slice slice,
                          const std::uint32_t* cancelled, CUstream stream);

} // namespace whorl
