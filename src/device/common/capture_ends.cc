#include "device/common/capture_ends.h"

#include "gpu/driver.h"

namespace whorl {

CaptureEnds::~CaptureEnds() {
  if (events_.empty() || !gpu::is_same_context(context_, context_id_)) return;
  const gpu::ContextGuard guard(context_);
  for (const auto& [capture, event] : events_) {
    static_cast<void>(gpu::driver()->cuEventDestroy(event));
  }
}

Status CaptureEnds::follow(CUstream stream, std::uint64_t capture) const {
  WHORL_CUDA_TRY(cuStreamWaitEvent(stream, events_.at(capture), 0));
  return {};
}

Status CaptureEnds::record(CUstream stream, std::uint64_t capture) {
  const auto event = event_for(capture);
  if (!event.ok()) return event.status();
  WHORL_CUDA_TRY(cuEventRecord(*event, stream));
  return {};
}

/// Returns the event of a capture: a new one, or that of the oldest capture, which is forgotten.
Result<CUevent> CaptureEnds::event_for(std::uint64_t capture) {
  if (has(capture)) return events_.at(capture);
  CUevent event = nullptr;
  if (events_.size() == kCaptures) {
    event = events_.begin()->second;
    events_.erase(events_.begin());
  } else {
    WHORL_CUDA_TRY(cuCtxGetCurrent(&context_));
    context_id_ = gpu::id_of(context_);
    WHORL_CUDA_TRY(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  }
  events_[capture] = event;
  return event;
}

} // namespace whorl
