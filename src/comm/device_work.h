#pragma once

#include <span>
#include <vector>

#include "comm/request.h"
#include "gpu/work.h"

namespace whorl {

/// The launches that carry out one collective of all ranks, whose memory one device reaches;
/// `requests` are those of all ranks, alike but for the buffers. At most gpu::kMaxBuffers ranks.
std::vector<gpu::Work> device_work(std::span<const Request> requests);

} // namespace whorl
