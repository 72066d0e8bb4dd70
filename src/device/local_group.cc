#include "device/local_group.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/log.h"
#include "device/common/capture.h"
#include "device/kernel/fused.h"
#include "device/staged/stream.h"
#include "gpu/kernels.h"
#include "gpu/memory_kind.h"

namespace whorl {

using gpu::driver;

namespace {

/// Sleeps until the event, and watches the peers meanwhile.
class EventNapper final : public Napper {
 public:
  EventNapper(Event::Waiter& event, Napper& peers) : event_(event), peers_(peers) {}
  void nap(std::uint64_t max_ns) noexcept override { event_.nap(max_ns); }
  void look_around(std::uint64_t waited_ns) noexcept override { peers_.look_around(waited_ns); }

 private:
  Event::Waiter& event_;
  Napper& peers_;
};

/// Whether the kernels do such a request.
bool suits(const Request& request, std::size_t nranks) {
  return !request.point_to_point() && request.collective != Collective::kBarrier &&
         !request.scaled && request.blocks == nullptr && request.table == nullptr &&
         nranks <= gpu::kMaxBuffers;
}

/// Whether kernels can be launched; loads them.
bool has_kernels(CUcontext context) {
  const gpu::ContextGuard guard(context);
  const Status status = gpu::Kernels::of(context).status();
  if (status.ok()) return true;
  static std::atomic_flag told;
  if (!told.test_and_set()) {
    log(LogLevel::kWarn, "the host carries out operations on device memory: " + status.message());
  }
  return false;
}

} // namespace

/// Each post has an event of its own: a rank may post in several streams before the first of its
/// operations is queued.
Status LocalDeviceGroup::record_ready(Post& post) {
  const gpu::ContextGuard guard(post.context);
  {
    const std::lock_guard lock(mutex_);
    std::vector<CUevent>& idle = idle_events_[post.context];
    if (!idle.empty()) {
      post.ready = idle.back();
      idle.pop_back();
    }
  }
  if (post.ready == nullptr) WHORL_CUDA_TRY(cuEventCreate(&post.ready, CU_EVENT_DISABLE_TIMING));
  WHORL_CUDA_TRY(cuEventRecord(post.ready, post.stream));
  const auto capture = capture_of(post.stream, post.context);
  post.captured = capture.ok() && capture->id != 0;
  return capture.status();
}

/// What waits for them has been queued, and keeps what they were. With the mutex held.
void LocalDeviceGroup::give_back_events(Operation& operation) {
  for (Post& post : operation.posts) {
    if (post.ready != nullptr) idle_events_[post.context].push_back(post.ready);
    post.ready = nullptr;
  }
}

Status LocalDeviceGroup::check(int rank, const Request& request, Stream* stream) const {
  const auto device = stream != nullptr ? stream->device() : std::nullopt;
  if (!device) return {};
  const auto context = static_cast<CUcontext>(device->context);
  const auto stream_of = static_cast<CUstream>(device->stream);
  const auto capture = capture_of(stream_of, context);
  if (!capture.ok() || capture->id == 0) return capture.status();
  const bool one_kernel = way_ != DeviceWay::kHost && suits(request, ranks_.size()) &&
                          reaches(context, request, rank, static_cast<int>(ranks_.size())) &&
                          has_kernels(context);
  return one_kernel ? Status() : refuse_capture(stream_of, context);
}

std::uint64_t LocalDeviceGroup::post(int rank, const Request& request, Stream* stream,
                                     std::uint64_t timeout_ns) {
  const auto index = static_cast<std::size_t>(rank);
  const int nranks = static_cast<int>(ranks_.size());
  Post mine;
  mine.made = true;
  mine.request = request;
  mine.timeout_ns = timeout_ns;
  if (const auto device = stream != nullptr ? stream->device() : std::nullopt) {
    mine.stream = static_cast<CUstream>(device->stream);
    mine.context = static_cast<CUcontext>(device->context);
    mine.on_device = way_ != DeviceWay::kHost && suits(request, ranks_.size()) &&
                     reaches(mine.context, request, rank, nranks);
    if (mine.on_device) mine.error = record_ready(mine);
  }
  const bool waits = mine.on_device;
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = ++ranks_[index].posted;
  if (!failure_.ok() && operations_.count(number) == 0) { // nobody will decide it
    if (mine.ready != nullptr) idle_events_[mine.context].push_back(mine.ready);
    return number;
  }
  Operation& operation = operations_[number];
  operation.posts.resize(ranks_.size());
  operation.posts[index] = std::move(mine);
  if (++operation.made == ranks_.size() && !operation.decided) {
    decide(operation);
    event_.notify();
  }
  if (!waits) leave(number, operation);
  return number;
}

/// With the mutex held.
void LocalDeviceGroup::leave(std::uint64_t number, Operation& operation) {
  if (++operation.left < ranks_.size()) return;
  give_back_events(operation);
  operations_.erase(number);
}

/// All have posted. With the mutex held.
void LocalDeviceGroup::decide(Operation& operation) {
  operation.decided = true;
  const std::vector<Post>& posts = operation.posts;
  const auto all = [&](auto&& holds) { return std::all_of(posts.begin(), posts.end(), holds); };
  const bool one_context = all([&](const Post& post) { return post.context == posts[0].context; });
  const bool on_devices = all([](const Post& post) { return post.on_device; });
  const bool suitable = one_context || (way_ != DeviceWay::kFused && schedules_ != nullptr);
  const bool fused = one_context && (way_ != DeviceWay::kSchedule || schedules_ == nullptr);
  // Not before all have posted: to load kernels may wait for a stream that waits for a call.
  if (!on_devices || !suitable || (fused && !has_kernels(posts[0].context))) {
    operation.error = check_captures(posts);
    return;
  }
  operation.error = way_error_;
  for (const Post& post : posts) {
    if (!post.error.ok()) operation.error = post.error;
  }
  if (operation.error.ok()) operation.error = check_alike(posts);
  if (operation.error.ok()) operation.error = check_joined(posts);
  if (!operation.error.ok()) return;
  const auto launched = launch(operation, one_context);
  operation.error = launched.status();
  if (posts[0].captured && !operation.error.ok()) {
    operation.error = operation.error.with_context(
        fmt::format("{} in streams that are being captured, all of which must belong to the same "
                    "capture",
                    describe(posts[0].request)));
  }
  if (!launched.ok()) return;
  operation.met = *launched ? Met::kQueued : posts[0].captured ? Met::kRefused : Met::kHost;
}

/// Queues an operation of ranks that are all on devices. False: the host has to do it.
Result<bool> LocalDeviceGroup::launch(const Operation& operation, bool one_context) {
  if (one_context && (way_ != DeviceWay::kSchedule || schedules_ == nullptr)) {
    WHORL_TRY(launch_fused(operation));
    return true;
  }
  std::vector<DeviceSchedules::Call> calls;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Post& post = operation.posts[rank];
    calls.push_back({.request = &post.request,
                     .context = post.context,
                     .stream = post.stream,
                     .ready = post.ready,
                     .timeout_ns = post.timeout_ns});
  }
  const std::lock_guard lock(schedules_mutex_);
  const auto launched = schedules_->launch(calls);
  if (!launched.ok() || !*launched) return launched;
  launched_.store(true, std::memory_order_seq_cst); // either this sees stopped_, or stop() sees it
  if (stopped_.load(std::memory_order_seq_cst)) schedules_->stop();
  return true;
}

// The driver may hold up who launches, with the mutexes, until a stream goes on that waits for what
// a thread of this process does. So that thread must not wait for a mutex here.

void LocalDeviceGroup::stop() noexcept {
  stopped_.store(true, std::memory_order_seq_cst); // see launch()
  if (launched_.load(std::memory_order_seq_cst)) schedules_->stop();
}

Status LocalDeviceGroup::failure() {
  if (schedules_ == nullptr) return {};
  const std::unique_lock lock(schedules_mutex_, std::try_to_lock);
  // Who launches looks as well, and whoever waits asks again.
  return lock.owns_lock() ? schedules_->failure() : Status();
}

/// The host is to carry the operation out, but a rank may have its stream captured.
Status LocalDeviceGroup::check_captures(const std::vector<Post>& posts) const {
  for (std::size_t rank = 0; rank < posts.size(); ++rank) {
    if (!posts[rank].on_device) continue;
    if (Status refused = refuse_capture(posts[rank].stream, posts[rank].context); !refused.ok()) {
      return refused.with_context(
          fmt::format("{} in {}, where not all ranks have their buffers on "
                      "one device",
                      names_[rank], describe(posts[rank].request)));
    }
  }
  return {};
}

/// An event takes a stream that waits for it into a capture, or spoils the capture.
Status LocalDeviceGroup::check_joined(const std::vector<Post>& posts) const {
  for (std::size_t rank = 1; rank < posts.size(); ++rank) {
    if (posts[rank].captured == posts[0].captured) continue;
    const std::size_t captured = posts[0].captured ? 0 : rank;
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("{} in {}: its stream is being captured into a graph, that of {} is not. Join "
                    "the streams of all ranks to one capture, by an event that is recorded in a "
                    "captured stream and that the other ones wait for, or capture none of them",
                    names_[captured], describe(posts[captured].request), names_[rank - captured]));
  }
  return {};
}

Status LocalDeviceGroup::check_alike(const std::vector<Post>& posts) const {
  const Fingerprint first = fingerprint_of(posts[0].request, 0, 0);
  for (std::size_t rank = 1; rank < posts.size(); ++rank) {
    const Fingerprint other = fingerprint_of(posts[rank].request, 0, 0);
    if (other == first) continue;
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("ranks disagree on an operation: {} calls {}, {} calls {}; they differ in {}. "
                    "All ranks must make the same calls in the same order",
                    names_[0], describe(posts[0].request), names_[rank],
                    describe(posts[rank].request), difference(first, other)));
  }
  return {};
}

Status LocalDeviceGroup::launch_fused(const Operation& operation) {
  const Post& leader = operation.posts.back();
  const gpu::ContextGuard guard(leader.context);
  if (done_context_ != leader.context) {
    if (done_ != nullptr) static_cast<void>(driver()->cuEventDestroy(done_));
    done_ = nullptr;
    WHORL_CUDA_TRY(cuEventCreate(&done_, CU_EVENT_DISABLE_TIMING));
    done_context_ = leader.context;
  }
  for (const Post& post : operation.posts) {
    if (post.stream == leader.stream) continue;
    WHORL_CUDA_TRY(cuStreamWaitEvent(leader.stream, post.ready, 0));
  }
  std::vector<Request> requests;
  for (const Post& post : operation.posts) requests.push_back(post.request);
  WHORL_TRY(launch_device_work(requests, {0, requests[0].count}, nullptr, leader.stream));
  WHORL_CUDA_TRY(cuEventRecord(done_, leader.stream));
  for (const Post& post : operation.posts) {
    if (post.stream == leader.stream) continue;
    WHORL_CUDA_TRY(cuStreamWaitEvent(post.stream, done_, 0));
  }
  return {};
}

/// Who has not posted. With the mutex held.
std::string LocalDeviceGroup::missing(const Operation& operation) const {
  std::string text;
  for (std::size_t rank = 0; rank < operation.posts.size(); ++rank) {
    if (operation.posts[rank].made) continue;
    text += (text.empty() ? "" : ", ") + names_[rank];
  }
  return text;
}

Result<Met> LocalDeviceGroup::meet(int rank, std::uint64_t number, const WaitPolicy& policy,
                                   const Verdict& verdict, Napper& napper) {
  Operation* operation = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = operations_.find(number);
    if (found == operations_.end()) { // or all had it carried out by the host
      if (!failure_.ok()) return failure_;
      return Met::kHost;
    }
    operation = &found->second; // stays until this rank leaves
    if (!operation->posts[static_cast<std::size_t>(rank)].on_device) return Met::kHost;
  }
  Event::Waiter waiter(event_);
  EventNapper both(waiter, napper);
  const auto decided = [&] {
    const std::lock_guard lock(mutex_);
    return operation->decided ? Progress::kDone : Progress::kIdle;
  };
  const WaitResult result = wait_until(decided, policy, verdict, both);
  const std::lock_guard lock(mutex_);
  if (!operation->decided) { // nobody must use this rank's buffers any more
    operation->decided = true;
    operation->error =
        result == WaitResult::kTimedOut
            ? Status::error(
                  Code::kRemoteError,
                  fmt::format(
                      "no progress for {:.1f} s. {} in {}: waiting for {} to make the call. "
                      "One thread that acts for several ranks must make their calls "
                      "between whorlGroupStart and whorlGroupEnd",
                      static_cast<double>(policy.timeout_ns) * 1e-9,
                      names_[static_cast<std::size_t>(rank)],
                      describe(operation->posts[static_cast<std::size_t>(rank)].request),
                      missing(*operation)))
            : verdict.status();
  }
  const Status error = operation->error;
  if (failure_.ok()) failure_ = error;
  const Met met = operation->met;
  leave(number, *operation);
  if (!error.ok()) return error;
  return met;
}

} // namespace whorl
