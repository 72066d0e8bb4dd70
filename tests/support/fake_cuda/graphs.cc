// Functions of the driver that measuring programs call: graphs, times.
#include <utility>

#include "tests/support/fake_cuda/device.h"
#include "tests/support/fake_cuda/fault.h"

#pragma GCC visibility push(default)

using fake_cuda::event_of;
using fake_cuda::Stream;
using fake_cuda::stream_of;

namespace {

using Graph = std::shared_ptr<Stream::Recording>;

/// Of the calling thread, each of a stream. What they record goes to the one that ends first.
thread_local int captures = 0;

} // namespace

extern "C" {

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  if (stream_of(stream).capturing.exchange(true)) return CUDA_ERROR_ILLEGAL_STATE;
  ++captures;
  stream_of(stream).capture_mode = mode;
  fake_cuda::begin_capture(mode);
  if (Stream::recording == nullptr) Stream::recording = std::make_shared<Stream::Recording>();
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  if (Stream::recording == nullptr || !stream_of(stream).capturing) return CUDA_ERROR_ILLEGAL_STATE;
  stream_of(stream).capturing = false;
  const auto recorded = std::exchange(Stream::recording, nullptr);
  if (--captures > 0) Stream::recording = std::make_shared<Stream::Recording>();
  *graph = nullptr;
  if (!fake_cuda::end_capture(stream_of(stream).capture_mode)) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  *graph = reinterpret_cast<CUgraph>(new Graph(recorded));
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
  delete reinterpret_cast<Graph*>(graph);
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiate(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  *executable = reinterpret_cast<CUgraphExec>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  stream_of(stream).push([graph = *reinterpret_cast<Graph*>(executable)] {
    for (const std::function<void()>& operation : *graph) operation();
  });
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec executable) {
  delete reinterpret_cast<Graph*>(executable);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  for (const CUevent event : {begin, end}) {
    if (!event_of(event)->reached(event_of(event)->recorded())) return CUDA_ERROR_NOT_READY;
  }
  *milliseconds =
      std::chrono::duration<float, std::milli>(event_of(end)->when() - event_of(begin)->when())
          .count();
  return CUDA_SUCCESS;
}
// Events of other processes there are none.
CUresult cuIpcGetEventHandle(CUipcEventHandle*, CUevent) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuIpcOpenEventHandle(CUevent*, CUipcEventHandle) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{1} << 30;
  return CUDA_SUCCESS;
}

} // extern "C"
