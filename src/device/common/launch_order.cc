#include "device/common/launch_order.h"

#include "gpu/driver.h"

namespace whorl {

using gpu::driver;

// In a capture an ordinary event stands for a node of the graph. An event with the flag EXTERNAL
// keeps its meaning outside the graph: each launch of the graph waits for the event as it was last
// recorded, and records it anew.

LaunchOrder::~LaunchOrder() {
  if (context_ == nullptr) return;
  const gpu::ContextGuard guard(context_);
  for (const CUevent event : {done_, captured_}) {
    if (event != nullptr) static_cast<void>(driver()->cuEventDestroy(event));
  }
}

Status LaunchOrder::prepare() {
  WHORL_CUDA_TRY(cuCtxGetCurrent(&context_));
  WHORL_CUDA_TRY(cuEventCreate(&done_, CU_EVENT_DISABLE_TIMING));
  WHORL_CUDA_TRY(cuEventCreate(&captured_, CU_EVENT_DISABLE_TIMING));
  return {};
}

Status LaunchOrder::enter(CUstream stream, std::uint64_t capture) {
  if (capture != 0 && capture == capture_) {
    WHORL_CUDA_TRY(cuStreamWaitEvent(stream, captured_, 0));
    return {};
  }
  WHORL_CUDA_TRY(cuStreamWaitEvent(stream, done_,
                                   capture == 0 ? CU_EVENT_WAIT_DEFAULT : CU_EVENT_WAIT_EXTERNAL));
  return {};
}

Status LaunchOrder::leave(CUstream stream, std::uint64_t capture) {
  last_captured_ = capture != 0;
  if (!last_captured_) {
    WHORL_CUDA_TRY(cuEventRecord(done_, stream));
    return {};
  }
  capture_ = capture;
  WHORL_CUDA_TRY(cuEventRecordWithFlags(done_, stream, CU_EVENT_RECORD_EXTERNAL));
  WHORL_CUDA_TRY(cuEventRecord(captured_, stream));
  return {};
}

Status LaunchOrder::follow(CUstream stream) const {
  WHORL_CUDA_TRY(cuStreamWaitEvent(stream, last_captured_ ? captured_ : done_, 0));
  return {};
}

void LaunchOrder::wait() const noexcept {
  if (done_ == nullptr) return;
  const gpu::ContextGuard guard(context_);
  // An error means that the device is lost, so no launch is running.
  static_cast<void>(driver()->cuEventSynchronize(done_));
}

} // namespace whorl
