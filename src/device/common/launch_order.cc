#include "device/common/launch_order.h"

#include <vector>

#include "gpu/driver.h"

namespace whorl {

using gpu::driver;

// In a capture an ordinary event stands for a node of the graph. An event with the flag EXTERNAL
// keeps its meaning outside the graph: each launch of the graph waits for the event as it was last
// recorded, and records it anew.

LaunchOrder::~LaunchOrder() {
  if (context_ == nullptr || !gpu::is_same_context(context_, context_id_)) return;
  const gpu::ContextGuard guard(context_);
  if (done_ != nullptr) static_cast<void>(driver()->cuEventDestroy(done_));
}

Status LaunchOrder::prepare() {
  WHORL_CUDA_TRY(cuCtxGetCurrent(&context_));
  context_id_ = gpu::id_of(context_);
  WHORL_CUDA_TRY(cuEventCreate(&done_, CU_EVENT_DISABLE_TIMING));
  return {};
}

Status LaunchOrder::enter(CUstream stream, std::uint64_t capture) {
  if (captured_.has(capture)) return captured_.follow(stream, capture);
  WHORL_CUDA_TRY(cuStreamWaitEvent(stream, done_,
                                   capture == 0 ? CU_EVENT_WAIT_DEFAULT : CU_EVENT_WAIT_EXTERNAL));
  return {};
}

Status LaunchOrder::leave(CUstream stream, std::uint64_t capture) {
  if (capture == 0) {
    WHORL_CUDA_TRY(cuEventRecord(done_, stream));
  } else {
    WHORL_TRY(record_in_graph(stream, capture));
    WHORL_TRY(captured_.record(stream, capture));
  }
  capture_ = capture;
  return {};
}

/// Adds a node that records `done_`. Nothing in the graph follows it but the next such node, so no
/// launch waits for it, as launches would for an external record in their stream.
Status LaunchOrder::record_in_graph(CUstream stream, std::uint64_t capture) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  const CUgraphNode* before = nullptr;
  std::size_t count = 0;
  WHORL_CUDA_TRY(cuStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph, &before, &count));
  std::vector<CUgraphNode> nodes(before, before + count);
  const auto last = records_.find(capture);
  if (last != records_.end()) nodes.push_back(last->second);
  CUgraphNode record = nullptr;
  WHORL_CUDA_TRY(cuGraphAddEventRecordNode(&record, graph, nodes.data(), nodes.size(), done_));
  // The same captures are known to `captured_`.
  if (last == records_.end() && records_.size() == CaptureEnds::kCaptures) {
    records_.erase(records_.begin());
  }
  records_[capture] = record;
  return {};
}

Status LaunchOrder::follow(CUstream stream) const {
  if (capture_ != 0) return captured_.follow(stream, capture_);
  WHORL_CUDA_TRY(cuStreamWaitEvent(stream, done_, 0));
  return {};
}

void LaunchOrder::wait() const noexcept {
  if (done_ == nullptr || !gpu::is_same_context(context_, context_id_)) return;
  const gpu::ContextGuard guard(context_);
  // An error means that the device is lost, so no launch is running.
  static_cast<void>(driver()->cuEventSynchronize(done_));
}

} // namespace whorl
