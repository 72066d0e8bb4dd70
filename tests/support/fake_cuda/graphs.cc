// Graphs, see graphs.h, and functions for measuring programs: times.
#include "tests/support/fake_cuda/graphs.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/contexts.h"
#include "tests/support/fake_cuda/device.h"
#include "tests/support/fake_cuda/fault.h"
#include "tests/support/fake_cuda/lock.h"

#pragma GCC visibility push(default)

using fake_cuda::Capture;
using fake_cuda::event_of;
using fake_cuda::Stream;
using fake_cuda::stream_of;

namespace {

using Graph = std::shared_ptr<fake_cuda::Graph>;

std::atomic<long> user_objects{0};

struct UserObject {
  void* pointer;
  CUhostFn destroy;
  std::atomic<unsigned> references;

  /// Drops references; the last one destroys the object, in a thread of the driver.
  void release(unsigned count) {
    if (references.fetch_sub(count) > count) return;
    std::thread([this] {
      fake_cuda::forbid_calls();
      destroy(pointer);
      delete this;
      --user_objects;
    }).detach();
  }
};
UserObject& object_of(CUuserObject handle) { return *reinterpret_cast<UserObject*>(handle); }

std::mutex& captures_mutex() {
  static auto& instance = *new std::mutex;
  return instance;
}

/// Returns all captures in progress, and some that have ended.
std::vector<std::weak_ptr<Capture>>& all_captures() {
  static auto& instance = *new std::vector<std::weak_ptr<Capture>>;
  return instance;
}

bool goes_on(const std::shared_ptr<Capture>& capture) {
  return capture != nullptr && !capture->streams.empty();
}

} // namespace

namespace fake_cuda {

Graph::~Graph() {
  for (const Retained& one : objects_) object_of(one.object).release(one.count);
}

std::size_t Graph::add(const Stream* stream, Repeat repeat, std::size_t after, bool looks_back) {
  const auto found = std::find(lanes_.begin(), lanes_.end(), stream);
  const auto lane = static_cast<std::size_t>(found - lanes_.begin());
  if (found == lanes_.end()) {
    lanes_.push_back(stream);
    last_.push_back(0);
  }
  Node node{.lane = lane, .repeat = std::move(repeat), .looks_back = looks_back, .after = {}};
  for (const std::size_t before : {last_[lane], after}) {
    if (before != 0) node.after.push_back(before);
  }
  nodes_.push_back(std::move(node));
  return last_[lane] = nodes_.size();
}

std::size_t Graph::add_apart(const Event* event, const std::vector<std::size_t>& after,
                             Repeat repeat) {
  const auto found = std::find(lanes_.begin(), lanes_.end(), event);
  const auto lane = static_cast<std::size_t>(found - lanes_.begin());
  if (found == lanes_.end()) {
    lanes_.push_back(event);
    last_.push_back(0); // no stream has to join it
  }
  nodes_.push_back({.lane = lane, .repeat = std::move(repeat), .after = after});
  return nodes_.size();
}

std::size_t Graph::last(const Stream* stream) const {
  const auto found = std::find(lanes_.begin(), lanes_.end(), stream);
  return found == lanes_.end() ? 0 : last_[static_cast<std::size_t>(found - lanes_.begin())];
}

bool Graph::ends_with(const Stream* stream) const {
  std::vector<bool> before(nodes_.size() + 1);
  before[last(stream)] = true;
  for (std::size_t node = nodes_.size(); node > 0; --node) {
    if (!before[node]) continue;
    for (const std::size_t one : nodes_[node - 1].after) before[one] = true;
  }
  return std::all_of(last_.begin(), last_.end(),
                     [&](std::size_t node) { return node == 0 || before[node]; });
}

std::vector<std::function<void()>> Graph::operations() const {
  std::vector<std::function<void()>> all(nodes_.size());
  for (const bool looks_back : {true, false}) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].repeat && nodes_[i].looks_back == looks_back) all[i] = nodes_[i].repeat();
    }
  }
  return all;
}

void Graph::run(const std::vector<std::function<void()>>& operations) const {
  std::vector<std::atomic<bool>> done(nodes_.size() + 1);
  const auto run_lane = [&](std::size_t lane) {
    for (std::size_t node = 1; node <= nodes_.size(); ++node) {
      const Node& one = nodes_[node - 1];
      if (one.lane != lane) continue;
      for (const std::size_t before : one.after) {
        while (!done[before] && !lost()) {
          std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
      }
      if (operations[node - 1] && !lost()) operations[node - 1]();
      done[node] = true;
    }
  };
  std::vector<std::thread> others;
  for (std::size_t lane = 1; lane < lanes_.size(); ++lane) {
    others.emplace_back([&, lane] { run_lane(lane); });
  }
  if (!lanes_.empty()) run_lane(0);
  for (std::thread& one : others) one.join();
}

std::uint64_t capture_of(Stream& stream) {
  const std::lock_guard lock(captures_mutex());
  return stream.capture != nullptr ? stream.capture->id : 0;
}

bool is_invalidated(Stream& stream) {
  const std::lock_guard lock(captures_mutex());
  return stream.capture != nullptr && stream.capture->invalidated;
}

bool record(Stream& stream, Repeat repeat, bool looks_back) {
  const std::lock_guard lock(captures_mutex());
  if (stream.capture == nullptr) return false;
  (*stream.capture->graph)->add(&stream, std::move(repeat), 0, looks_back);
  return true;
}

bool record_in_capture(const Stream& stream, Event& event) {
  const std::lock_guard lock(captures_mutex());
  event.capture = stream.capture;
  if (stream.capture == nullptr) return false;
  event.node = (*stream.capture->graph)->last(&stream);
  return true;
}

CUresult join_capture(Stream& stream, const Event& event) {
  const std::lock_guard lock(captures_mutex());
  if (stream.capture == nullptr) {
    if (!goes_on(event.capture)) return CUDA_SUCCESS;
    stream.capture = event.capture;
    stream.capture->streams.push_back(&stream);
  }
  if (event.capture == stream.capture) {
    (*stream.capture->graph)->add(&stream, {}, event.node);
    return CUDA_SUCCESS;
  }
  stream.capture->invalidated = true;
  return goes_on(event.capture) ? CUDA_ERROR_STREAM_CAPTURE_MERGE
                                : CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

CUresult refused_in_capture(CUstream handle) {
  if (const CUresult bad = refused(handle); bad != CUDA_SUCCESS) return bad;
  Stream& stream = stream_of(handle);
  if (stream.kind() == Stream::Kind::kLegacy && default_stream_is_refused()) {
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return is_invalidated(stream) ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

bool cannot_be_captured(Stream& stream) {
  const std::lock_guard lock(captures_mutex());
  if (stream.capture == nullptr) return false;
  return stream.capture->invalidated = true;
}

bool invalidate_global_captures() {
  const std::lock_guard lock(captures_mutex());
  bool any = false;
  for (const auto& one : all_captures()) {
    const std::shared_ptr<Capture> capture = one.lock();
    if (!goes_on(capture) || capture->mode != CU_STREAM_CAPTURE_MODE_GLOBAL) continue;
    any = capture->invalidated = true;
  }
  return any;
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
      capture->invalidated = capture->invalidated || used;
    }
  }
  return refused;
}

} // namespace fake_cuda

extern "C" {

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  const fake_cuda::DriverLock inside(handle);
  static unsigned long long ids = 0;
  Stream& stream = stream_of(handle);
  const std::lock_guard lock(captures_mutex());
  if (stream.capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  stream.capture =
      std::make_shared<Capture>(Capture{.streams = {&stream},
                                        .mode = mode,
                                        .id = ++ids,
                                        .graph = new Graph(std::make_shared<fake_cuda::Graph>())});
  std::erase_if(all_captures(), [](const auto& one) { return one.expired(); });
  all_captures().push_back(stream.capture);
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  const fake_cuda::DriverLock inside(handle);
  Stream& stream = stream_of(handle);
  std::shared_ptr<Capture> capture;
  {
    const std::lock_guard lock(captures_mutex());
    capture = stream.capture;
    if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->streams.front() != &stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    for (Stream* const one : capture->streams) one->capture = nullptr;
    capture->streams.clear();
  }
  *graph = nullptr;
  Graph* const made = std::exchange(capture->graph, nullptr);
  const bool good = !capture->invalidated; // no other thread changes it any more
  const bool joined = (*made)->ends_with(&stream);
  if (good && joined) {
    *graph = reinterpret_cast<CUgraph>(made);
    return CUDA_SUCCESS;
  }
  delete made;
  return good ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}
// Has the parameters of CUDA 11.3, see gpu/driver.h.
CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** before, std::size_t* count) {
  const fake_cuda::DriverLock inside(handle);
  if (const CUresult bad = fake_cuda::refused(handle); bad != CUDA_SUCCESS) return bad;
  Stream& stream = stream_of(handle);
  if (stream.kind() == Stream::Kind::kLegacy && fake_cuda::default_stream_is_refused(false)) {
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  const std::lock_guard lock(captures_mutex());
  Capture* const capture = stream.capture.get();
  *status = capture == nullptr     ? CU_STREAM_CAPTURE_STATUS_NONE
            : capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                   : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (capture == nullptr) return CUDA_SUCCESS;
  if (id != nullptr) *id = capture->id;
  if (graph != nullptr) *graph = reinterpret_cast<CUgraph>(capture->graph);
  if (before != nullptr) {
    const std::size_t last = (*capture->graph)->last(&stream);
    capture->before = reinterpret_cast<CUgraphNode>(last);
    *before = &capture->before;
    *count = last == 0 ? 0 : 1;
  }
  return CUDA_SUCCESS;
}
CUresult cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
                                   std::size_t count, CUevent handle) {
  const fake_cuda::DriverLock inside;
  const std::shared_ptr<fake_cuda::Event> event = event_of(handle);
  const auto record = [event]() -> std::function<void()> {
    return [event, number = event->record()] { event->reach(number); };
  };
  std::vector<std::size_t> after;
  for (std::size_t i = 0; i < count; ++i) after.push_back(reinterpret_cast<std::size_t>(before[i]));
  const std::lock_guard lock(captures_mutex());
  const std::size_t made =
      (*reinterpret_cast<Graph*>(graph))->add_apart(event.get(), after, record);
  *node = reinterpret_cast<CUgraphNode>(made);
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
  const fake_cuda::DriverLock inside;
  delete reinterpret_cast<Graph*>(graph);
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiate(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  const fake_cuda::DriverLock inside;
  *executable = reinterpret_cast<CUgraphExec>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  const fake_cuda::DriverLock inside(stream);
  if (const CUresult bad = fake_cuda::refused(stream); bad != CUDA_SUCCESS) return bad;
  const Graph graph = *reinterpret_cast<Graph*>(executable);
  stream_of(stream).push([graph, operations = graph->operations()] { graph->run(operations); },
                         true);
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec executable) {
  const fake_cuda::DriverLock inside;
  delete reinterpret_cast<Graph*>(executable);
  return CUDA_SUCCESS;
}

long fake_cuda_user_objects() { return user_objects; }
CUresult cuUserObjectCreate(CUuserObject* object, void* pointer, CUhostFn destroy,
                            unsigned references, unsigned flags) {
  const fake_cuda::DriverLock inside;
  if (fake_cuda::lost()) return fake_cuda::kFault;
  if (destroy == nullptr || references == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ++user_objects;
  *object = reinterpret_cast<CUuserObject>(new UserObject{pointer, destroy, references});
  return CUDA_SUCCESS;
}
CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
  const fake_cuda::DriverLock inside;
  object_of(object).release(count);
  return CUDA_SUCCESS;
}
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count,
                                 unsigned flags) {
  const fake_cuda::DriverLock inside;
  if (graph == nullptr || object == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) object_of(object).references += count;
  (*reinterpret_cast<Graph*>(graph))->retain(object, count);
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
// Events of other processes are not supported.
CUresult cuIpcGetEventHandle(CUipcEventHandle*, CUevent) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuIpcOpenEventHandle(CUevent*, CUipcEventHandle) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{1} << 30;
  return CUDA_SUCCESS;
}

} // extern "C"
