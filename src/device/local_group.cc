#include "device/local_group.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/log.h"
#include "device/common/capture.h"
#include "device/common/context.h"
#include "device/common/late_calls.h"
#include "device/kernel/blocks.h"
#include "device/kernel/fused.h"
#include "device/staged/stream.h"
#include "gpu/kernels.h"
#include "gpu/memory_kind.h"

namespace whorl {

using gpu::driver;

namespace {

/// Waiter that sleeps until the event, and watches the peers meanwhile.
class EventWaiter final : public Waiter {
 public:
  EventWaiter(Event::Waiter& event, Waiter& peers) : event_(event), peers_(peers) {}
  void block(std::uint64_t max_ns) noexcept override { event_.block(max_ns); }
  void poll_failures(std::uint64_t waited_ns) noexcept override { peers_.poll_failures(waited_ns); }

 private:
  Event::Waiter& event_;
  Waiter& peers_;
};

/// Loads the kernels of a context, and returns whether they can be launched.
bool has_kernels(CUcontext context) {
  const gpu::ContextGuard guard(context);
  const Status status = gpu::Kernels::of(context).status();
  if (status.ok()) return true;
  static std::atomic_flag warned;
  if (!warned.test_and_set()) {
    log(LogLevel::kWarn, "the host carries out operations on device memory: " + status.message());
  }
  return false;
}

} // namespace

/// Records the post's event in the post's stream, and whether the stream is being captured. Each
/// post has an event of its own: a rank may post in several streams before the first of its
/// operations is queued.
Status LocalDeviceGroup::record_ready(Post& post) {
  const gpu::ContextGuard guard(post.context);
  {
    const std::lock_guard lock(mutex_);
    Events& idle = idle_events_[post.context];
    if (idle.context_id == 0) idle.context_id = gpu::id_of(post.context);
    if (!idle.all.empty()) {
      post.ready = idle.all.back();
      idle.all.pop_back();
    }
  }
  if (post.ready == nullptr) WHORL_CUDA_TRY(cuEventCreate(&post.ready, CU_EVENT_DISABLE_TIMING));
  WHORL_CUDA_TRY(cuEventRecord(post.ready, post.stream));
  const auto capture = capture_of(post.stream, post.context);
  post.captured = capture.ok() && capture->id != 0;
  return capture.status();
}

/// Makes the events of an operation idle. The waits for these events have been queued, and a queued
/// wait is not affected by a later record of its event. The caller holds the mutex.
void LocalDeviceGroup::give_back_events(Operation& operation) {
  for (Post& post : operation.posts) {
    if (post.ready != nullptr) idle_events_[post.context].all.push_back(post.ready);
    post.ready = nullptr;
  }
}

/// Whether kernels can carry out such a request on the buffers of `rank`.
bool LocalDeviceGroup::may_go_on_device(int rank, const Request& request, CUcontext context) const {
  // Ranks on several devices would wait for each other, and then leave the operation to the host.
  if (has_uneven_sums(request) && several_contexts_.load(std::memory_order_relaxed)) return false;
  return algo_ != DeviceAlgo::kHost && suits_devices(request) &&
         request.collective != Collective::kBarrier && ranks_.size() <= gpu::kMaxBuffers &&
         reaches(context, request, rank, static_cast<int>(ranks_.size()));
}

Status LocalDeviceGroup::check(int rank, const Request& request, Stream* stream) const {
  return check_capture(stream, [&](CUcontext context) {
    return may_go_on_device(rank, request, context) && has_kernels(context);
  });
}

std::uint64_t LocalDeviceGroup::post(int rank, const Request& request, Stream* stream,
                                     std::uint64_t timeout_ns) {
  const auto index = static_cast<std::size_t>(rank);
  Post mine;
  mine.request = request;
  mine.timeout_ns = timeout_ns;
  if (const auto device = stream != nullptr ? stream->device() : std::nullopt) {
    mine.stream = static_cast<CUstream>(device->stream);
    if (mine.stream == CU_STREAM_PER_THREAD) mine.thread = pthread_self();
    mine.context = static_cast<CUcontext>(device->context);
    mine.on_device = may_go_on_device(rank, request, mine.context);
    if (mine.on_device) mine.error = record_ready(mine);
  }
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = ++ranks_[index].posted;
  if (!failure_.ok() && operations_.count(number) == 0) { // no other rank will post it
    if (mine.ready != nullptr) idle_events_[mine.context].all.push_back(mine.ready);
    return number;
  }
  Operation& operation = operations_[number];
  operation.posts.resize(ranks_.size());
  add_leavers(number, operation);
  add(number, operation, index, std::move(mine));
  return number;
}

/// Adds the post of a rank. The last one decides. The caller holds the mutex.
void LocalDeviceGroup::add(std::uint64_t number, Operation& operation, std::size_t rank,
                           Post post) {
  const bool waits = post.on_device;
  post.made = true;
  operation.posts[rank] = std::move(post);
  if (++operation.made == ranks_.size() && !operation.decided) {
    decide(operation);
    event_.notify();
  }
  if (!waits) leave(number, operation);
}

/// Adds empty posts of ranks that have left. The caller holds the mutex, and a rank for which it
/// acts has not left the operation.
void LocalDeviceGroup::add_leavers(std::uint64_t number, Operation& operation) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    // Pairs with release in leave_for_good().
    if (!operation.posts[rank].made && ranks_[rank].left_for_good.load(std::memory_order_acquire)) {
      add(number, operation, rank, {});
    }
  }
}

void LocalDeviceGroup::leave_for_good(int rank) noexcept {
  // Pairs with acquire in add_leavers().
  ranks_[static_cast<std::size_t>(rank)].left_for_good.store(true, std::memory_order_release);
  event_.notify(); // for who waits in meet()
}

/// Notes that a rank has left an operation, and erases it after the last rank. The caller holds the
/// mutex.
void LocalDeviceGroup::leave(std::uint64_t number, Operation& operation) {
  if (++operation.left < ranks_.size()) return;
  give_back_events(operation);
  operations_.erase(number);
}

/// Makes the launches of an operation that one kernel carries out.
Status LocalDeviceGroup::prepare_fused(Operation& operation) {
  std::vector<Request> requests;
  for (const Post& post : operation.posts) requests.push_back(post.request);
  auto works = device_work(requests);
  if (!works.ok()) return works.status();
  operation.works = *std::move(works);
  return {};
}

/// Chooses who carries out an operation that all ranks have posted. The caller holds the mutex.
DevicePath LocalDeviceGroup::path_of(const std::vector<Post>& posts) {
  const auto all = [&](auto&& holds) { return std::all_of(posts.begin(), posts.end(), holds); };
  const bool one_context = all([&](const Post& post) { return post.context == posts[0].context; });
  // The calling thread queues an operation of the device for all ranks; the host's are queued by
  // the thread of each.
  const auto here = [](const Post& post) {
    return !post.thread || pthread_equal(*post.thread, pthread_self()) != 0;
  };
  const bool on_device = all([&](const Post& post) { return post.on_device && here(post); });
  if (on_device && !one_context) several_contexts_.store(true, std::memory_order_relaxed);
  return choose_device_path(
      {.on_device = on_device,
       .shared = true,
       .uneven_sums = std::any_of(posts.begin(), posts.end(),
                                  [](const Post& post) { return has_uneven_sums(post.request); }),
       .one_process = true,
       .schedules = schedules_ != nullptr,
       .layout = one_context ? DeviceLayout::kOneDevice : DeviceLayout::kOtherwise,
       .algo = algo_});
}

/// Queues an operation that all ranks have posted, or leaves it to the host. The caller holds the
/// mutex.
void LocalDeviceGroup::decide(Operation& operation) {
  operation.decided = true;
  const std::vector<Post>& posts = operation.posts;
  DevicePath path = path_of(posts);
  // Kernels are not loaded before all ranks have posted: loading may wait for a stream that waits
  // for a call of another rank.
  if (path == DevicePath::kFused && !has_kernels(posts[0].context)) path = DevicePath::kHost;
  if (path == DevicePath::kHost) {
    if (std::all_of(posts.begin(), posts.end(), [](const Post& post) { return post.captured; })) {
      operation.met = Met::kRefused;
    } else {
      operation.error = check_captures(posts);
    }
    return;
  }
  operation.error = algo_error_;
  for (const Post& post : posts) {
    if (!post.error.ok()) operation.error = post.error;
  }
  if (operation.error.ok()) operation.error = check_alike(posts);
  if (operation.error.ok()) operation.error = check_joined(posts);
  if (operation.error.ok() && path == DevicePath::kFused) {
    operation.error = prepare_fused(operation);
  }
  if (!operation.error.ok()) return;
  const auto launched = launch(operation, path);
  operation.error = launched.status();
  if (posts[0].captured && operation.error.code() == Code::kCudaError) {
    operation.error = operation.error.with_context(
        fmt::format("{} in streams that are being captured, all of which must belong to the same "
                    "capture",
                    describe(posts[0].request)));
  }
  if (!launched.ok()) return;
  operation.met = *launched ? Met::kQueued : posts[0].captured ? Met::kRefused : Met::kHost;
}

/// Queues an operation of ranks that are all on devices. Returns false if the host has to carry it
/// out.
Result<bool> LocalDeviceGroup::launch(Operation& operation, DevicePath path) {
  if (path == DevicePath::kFused) {
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

// A launch holds the mutexes, and the driver may hold it up until some stream goes on, which may
// wait for a thread of this process. So stop() and failure() never wait for a mutex.

void LocalDeviceGroup::stop() noexcept {
  stopped_.store(true, std::memory_order_seq_cst); // see launch()
  if (launched_.load(std::memory_order_seq_cst)) schedules_->stop();
}

Status LocalDeviceGroup::failure() {
  if (schedules_ == nullptr) return {};
  const std::unique_lock lock(schedules_mutex_, std::try_to_lock);
  // While a launch holds the mutex, it looks for failures itself; waits call this again.
  return lock.owns_lock() ? schedules_->failure() : Status();
}

/// Returns an error if the host has to carry out an operation for which a rank's stream is being
/// captured.
Status LocalDeviceGroup::check_captures(const std::vector<Post>& posts) const {
  const auto left = std::find_if(ranks_.begin(), ranks_.end(),
                                 [](const Rank& rank) { return rank.left_for_good.load(); });
  const std::string why =
      left != ranks_.end() ? names_[static_cast<std::size_t>(left - ranks_.begin())] +
                                 " has destroyed its communicator"
                           : "not all ranks have their buffers on one device, or their streams are "
                             "cudaStreamPerThread of different threads";
  for (std::size_t rank = 0; rank < posts.size(); ++rank) {
    const Post& post = posts[rank];
    if (!post.on_device) continue;
    const Status refused = !post.thread ? refuse_capture(post.stream, post.context)
                           : post.captured
                               ? Status::error(Code::kInvalidUsage, std::string(kNotForGraphs))
                               : post.error;
    if (!refused.ok()) {
      return refused.with_context(
          fmt::format("{} in {}, where {}", names_[rank], describe(post.request), why));
    }
  }
  return {};
}

/// Checks that the streams of all ranks, or of none, are being captured: a wait for an event of a
/// captured stream takes the waiting stream into the capture, or invalidates the capture.
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
        describe_disagreement({names_[0], describe(posts[0].request), first},
                              {names_[rank], describe(posts[rank].request), other}));
  }
  return {};
}

Status LocalDeviceGroup::launch_fused(Operation& operation) {
  const Post& leader = operation.posts.back();
  const gpu::ContextGuard guard(leader.context);
  if (done_context_ != leader.context) {
    if (done_ != nullptr && gpu::is_same_context(done_context_, done_context_id_)) {
      static_cast<void>(driver()->cuEventDestroy(done_));
    }
    done_ = nullptr;
    WHORL_CUDA_TRY(cuEventCreate(&done_, CU_EVENT_DISABLE_TIMING));
    done_context_ = leader.context;
    done_context_id_ = gpu::id_of(leader.context);
  }
  for (const Post& post : operation.posts) {
    if (post.stream == leader.stream) continue;
    WHORL_CUDA_TRY(cuStreamWaitEvent(leader.stream, post.ready, 0));
  }
  WHORL_TRY(launch_device_work(leader.request, operation.works, nullptr, leader.stream));
  WHORL_CUDA_TRY(cuEventRecord(done_, leader.stream));
  for (const Post& post : operation.posts) {
    if (post.stream == leader.stream) continue;
    WHORL_CUDA_TRY(cuStreamWaitEvent(post.stream, done_, 0));
  }
  return {};
}

/// Makes the error of a rank that has waited too long for others. The caller holds the mutex.
Status LocalDeviceGroup::late(const Operation& operation, int rank,
                              std::uint64_t timeout_ns) const {
  const auto own = static_cast<std::size_t>(rank);
  const auto missing = [&](std::size_t other) { return !operation.posts[other].made; };
  return late_error(names_[own], operation.posts[own].request, names_where(names_, missing),
                    timeout_ns, true);
}

Result<Met> LocalDeviceGroup::meet(int rank, std::uint64_t number, const WaitPolicy& policy,
                                   const CommError& comm_error, Waiter& waiter) {
  Operation* operation = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = operations_.find(number);
    if (found == operations_.end()) { // failed, or left to the host by all ranks
      if (!failure_.ok()) return failure_;
      return Met::kHost;
    }
    operation = &found->second; // stays until this rank leaves
    if (!operation->posts[static_cast<std::size_t>(rank)].on_device) return Met::kHost;
  }
  Event::Waiter decision(event_);
  EventWaiter both(decision, waiter);
  const auto decided = [&] {
    const std::lock_guard lock(mutex_);
    add_leavers(number, *operation);
    return operation->decided ? Progress::kDone : Progress::kIdle;
  };
  const WaitResult result = wait_until(decided, policy, comm_error, both);
  const std::lock_guard lock(mutex_);
  if (!operation->decided) { // decided now, so that no rank uses this rank's buffers any more
    operation->decided = true;
    operation->error = result == WaitResult::kTimedOut ? late(*operation, rank, policy.timeout_ns)
                                                       : comm_error.status();
  }
  const Status error = operation->error;
  if (failure_.ok()) failure_ = error;
  const Met met = operation->met;
  leave(number, *operation);
  if (!error.ok()) return error;
  return met;
}

} // namespace whorl
