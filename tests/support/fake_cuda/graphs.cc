// Functions of the driver that measuring programs call: graphs, times.
#include <mutex>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/contexts.h"
#include "tests/support/fake_cuda/device.h"
#include "tests/support/fake_cuda/fault.h"

#pragma GCC visibility push(default)

using fake_cuda::event_of;
using fake_cuda::Stream;
using fake_cuda::stream_of;

namespace {

using Graph = std::shared_ptr<Stream::Recording>;
using fake_cuda::Capture;

/// Of the calling thread. What they record goes to the one that ends first.
thread_local int captures = 0;

std::mutex& captures_mutex() {
  static auto& instance = *new std::mutex;
  return instance;
}

/// All that there have been.
std::vector<std::weak_ptr<Capture>>& all_captures() {
  static auto& instance = *new std::vector<std::weak_ptr<Capture>>;
  return instance;
}

bool goes_on(const std::shared_ptr<Capture>& capture) {
  return capture != nullptr && !capture->streams.empty();
}

} // namespace

namespace fake_cuda {

std::uint64_t capture_of(Stream& stream) {
  const std::lock_guard lock(captures_mutex());
  return stream.capture != nullptr ? stream.capture->id : 0;
}

bool is_spoilt(Stream& stream) {
  const std::lock_guard lock(captures_mutex());
  return stream.capture != nullptr && stream.capture->spoilt;
}

void record_in_capture(const Stream& stream, Event& event) {
  const std::lock_guard lock(captures_mutex());
  event.capture = stream.capture;
}

CUresult join_capture(Stream& stream, const Event& event) {
  const std::lock_guard lock(captures_mutex());
  if (stream.capture == nullptr) {
    if (!goes_on(event.capture)) return CUDA_SUCCESS;
    stream.capture = event.capture;
    stream.capture->streams.push_back(&stream);
    return CUDA_SUCCESS;
  }
  if (event.capture == stream.capture) return CUDA_SUCCESS;
  stream.capture->spoilt = true;
  return goes_on(event.capture) ? CUDA_ERROR_STREAM_CAPTURE_MERGE
                                : CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

CUresult refused_in_capture(CUstream handle) {
  if (const CUresult bad = refused(handle); bad != CUDA_SUCCESS) return bad;
  Stream& stream = stream_of(handle);
  if (stream.kind() == Stream::Kind::kLegacy && default_stream_is_refused()) {
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return is_spoilt(stream) ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

bool default_stream_is_refused(bool used) {
  const std::lock_guard lock(captures_mutex());
  bool refused = false;
  for (const auto& one : all_captures()) {
    const std::shared_ptr<Capture> capture = one.lock();
    if (capture == nullptr) continue;
    for (const Stream* const stream : capture->streams) {
      if (stream->kind() != Stream::Kind::kBlocking || stream->device() != current_device())
        continue;
      refused = true;
      capture->spoilt = capture->spoilt || used;
    }
  }
  return refused;
}

} // namespace fake_cuda

extern "C" {

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  Stream& stream = stream_of(handle);
  {
    const std::lock_guard lock(captures_mutex());
    if (stream.capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    static std::uint64_t made = 0;
    stream.capture =
        std::make_shared<Capture>(Capture{.id = ++made, .streams = {&stream}, .mode = mode});
    all_captures().push_back(stream.capture);
  }
  ++captures;
  fake_cuda::begin_capture(mode);
  if (Stream::recording == nullptr) Stream::recording = std::make_shared<Stream::Recording>();
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  Stream& stream = stream_of(handle);
  std::shared_ptr<Capture> capture;
  {
    const std::lock_guard lock(captures_mutex());
    capture = stream.capture;
    if (Stream::recording == nullptr || capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->streams.front() != &stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    for (Stream* const one : capture->streams) one->capture = nullptr;
    capture->streams.clear();
  }
  const auto recorded = std::exchange(Stream::recording, nullptr);
  if (--captures > 0) Stream::recording = std::make_shared<Stream::Recording>();
  *graph = nullptr;
  if (!fake_cuda::end_capture(capture->mode) || capture->spoilt) {
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
  std::vector<std::function<void()>> operations;
  for (const Stream::Repeat& repeat : **reinterpret_cast<Graph*>(executable)) {
    operations.push_back(repeat());
  }
  stream_of(stream).push([operations = std::move(operations)] {
    for (const std::function<void()>& operation : operations) operation();
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
