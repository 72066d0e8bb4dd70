#include "device/common/group.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "base/event.h"
#include "base/log.h"
#include "base/params.h"
#include "device/common/capture.h"
#include "device/common/path.h"
#include "device/ipc/group.h"
#include "device/kernel/fused.h"
#include "device/kernel/schedule_local.h"
#include "device/staged/stream.h"
#include "gpu/driver.h"
#include "gpu/kernels.h"
#include "gpu/memory_kind.h"

namespace whorl {
namespace {

using gpu::driver;

class ProcessGroup final : public DeviceGroup {
 public:
  ProcessGroup(const Membership& members, const DeviceRules& rules)
      : name_(members.name),
        names_(members.names()),
        ranks_(static_cast<std::size_t>(members.nranks)) {
    const auto way = device_way();
    if (way.ok()) way_ = *way;
    way_error_ = way.status();
    if (ranks_.size() <= gpu::kMaxRanks) {
      schedules_ = std::make_unique<DeviceSchedules>(members, rules);
    }
  }
  ~ProcessGroup() override {
    for (auto& [number, operation] : operations_) give_back_events(operation);
    for (const auto& [context, events] : idle_events_) {
      const gpu::ContextGuard guard(context);
      for (const CUevent event : events) static_cast<void>(driver()->cuEventDestroy(event));
    }
    if (done_ == nullptr) return;
    const gpu::ContextGuard guard(done_context_);
    static_cast<void>(driver()->cuEventDestroy(done_));
  }

  Status check(int rank, const Request& request, Stream* stream) const override;
  std::uint64_t post(int rank, const Request& request, Stream* stream,
                     std::uint64_t timeout_ns) override;
  Result<Met> meet(int rank, std::uint64_t number, const WaitPolicy& policy, const Verdict& verdict,
                   Napper& napper) override;
  void stop() noexcept override;
  Status failure() override;

 private:
  struct Rank {
    std::uint64_t posted = 0; ///< operations so far
  };
  struct Post {
    bool made = false;
    Request request;
    CUstream stream = nullptr; ///< if it is on the device
    CUcontext context = nullptr;
    CUevent ready = nullptr; ///< the point of its stream at which it was made
    bool captured = false;   ///< its stream is, into a graph
    bool on_device = false;
    std::uint64_t timeout_ns = 0;
    Status error; ///< of its event
  };
  struct Operation {
    std::vector<Post> posts;
    std::size_t made = 0; ///< posts
    std::size_t left = 0; ///< ranks that have seen the outcome, or need none
    bool decided = false;
    Met met = Met::kHost; ///< once decided
    Status error;
  };

  Status record_ready(Post& post);
  void give_back_events(Operation& operation);
  void decide(Operation& operation);
  Result<bool> launch(const Operation& operation, bool one_context);
  Status launch_fused(const Operation& operation);
  Status check_captures(const std::vector<Post>& posts) const;
  Status check_joined(const std::vector<Post>& posts) const;
  Status check_alike(const std::vector<Post>& posts) const;
  void leave(std::uint64_t number, Operation& operation);
  std::string missing(const Operation& operation) const;

  const std::string name_;
  const std::vector<std::string> names_;
  std::mutex mutex_;
  Event event_; ///< notified when an operation has been decided
  std::vector<Rank> ranks_;
  std::map<std::uint64_t, Operation> operations_;         ///< that not all ranks have left
  std::map<CUcontext, std::vector<CUevent>> idle_events_; ///< that no post has
  Status failure_; ///< of an operation, with which the communicator ends
  CUevent done_ = nullptr;
  CUcontext done_context_ = nullptr;
  DeviceWay way_ = DeviceWay::kAny;
  Status way_error_;
  std::unique_ptr<DeviceSchedules> schedules_; ///< null with too many ranks
  std::mutex schedules_mutex_;                 ///< taken behind the other one
  std::atomic<bool> stopped_{false};
  std::atomic<bool> launched_{false}; ///< schedules_, which has what stop() needs since then
};

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

/// Each post has an event of its own: a rank may post in several streams before the first of its
/// operations is queued.
Status ProcessGroup::record_ready(Post& post) {
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
void ProcessGroup::give_back_events(Operation& operation) {
  for (Post& post : operation.posts) {
    if (post.ready != nullptr) idle_events_[post.context].push_back(post.ready);
    post.ready = nullptr;
  }
}

Status ProcessGroup::check(int rank, const Request& request, Stream* stream) const {
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

std::uint64_t ProcessGroup::post(int rank, const Request& request, Stream* stream,
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
void ProcessGroup::leave(std::uint64_t number, Operation& operation) {
  if (++operation.left < ranks_.size()) return;
  give_back_events(operation);
  operations_.erase(number);
}

/// All have posted. With the mutex held.
void ProcessGroup::decide(Operation& operation) {
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
Result<bool> ProcessGroup::launch(const Operation& operation, bool one_context) {
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

void ProcessGroup::stop() noexcept {
  stopped_.store(true, std::memory_order_seq_cst); // see launch()
  if (launched_.load(std::memory_order_seq_cst)) schedules_->stop();
}

Status ProcessGroup::failure() {
  if (schedules_ == nullptr) return {};
  const std::unique_lock lock(schedules_mutex_, std::try_to_lock);
  // Who launches looks as well, and whoever waits asks again.
  return lock.owns_lock() ? schedules_->failure() : Status();
}

/// The host is to carry the operation out, but a rank may have its stream captured.
Status ProcessGroup::check_captures(const std::vector<Post>& posts) const {
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
Status ProcessGroup::check_joined(const std::vector<Post>& posts) const {
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

Status ProcessGroup::check_alike(const std::vector<Post>& posts) const {
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

Status ProcessGroup::launch_fused(const Operation& operation) {
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
std::string ProcessGroup::missing(const Operation& operation) const {
  std::string text;
  for (std::size_t rank = 0; rank < operation.posts.size(); ++rank) {
    if (operation.posts[rank].made) continue;
    text += (text.empty() ? "" : ", ") + names_[rank];
  }
  return text;
}

Result<Met> ProcessGroup::meet(int rank, std::uint64_t number, const WaitPolicy& policy,
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

struct Registry {
  std::mutex mutex;
  std::map<std::array<std::byte, 16>, std::weak_ptr<ProcessGroup>> groups; ///< by job
};
Registry& registry() {
  static Registry* const instance = new Registry; // never destroyed: ranks may outlive main()
  return *instance;
}

} // namespace

std::shared_ptr<DeviceGroup> join_device_group(const Membership& members,
                                               std::span<std::byte> board, FdMailbox* mailbox,
                                               const DeviceWatch& watch, const DeviceRules& rules) {
  if (!devices_possible()) return nullptr;
  if (members.ranks_in_process_of(members.rank) != members.nranks) {
    static_assert(kMostDeviceRanks <= gpu::kMaxBuffers);
    if (!members.shares_devices() || board.empty()) return nullptr;
    return std::make_shared<DevicePeers>(members, board, mailbox, watch, rules);
  }
  auto& [mutex, groups] = registry();
  const std::lock_guard lock(mutex);
  std::erase_if(groups, [](const auto& entry) { return entry.second.expired(); });
  auto& known = groups[members.identity.job];
  std::shared_ptr<ProcessGroup> group = known.lock();
  if (group == nullptr) {
    group = std::make_shared<ProcessGroup>(members, rules);
    known = group;
  }
  return group;
}

} // namespace whorl
