#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "api/call.h"
#include "api/handle.h"
#include "base/status.h"

namespace whorl {

/// The group of the calling thread: calls collected between whorlGroupStart() and whorlGroupEnd().
class Group {
 public:
  static Group& current() noexcept;

  /// Whether the calling thread has a group open; cheaper than current().
  static bool open() noexcept { return (depth_ & ~kInCallback) != 0; }
  /// Whether the calling thread is in a callback of a stream.
  static bool in_callback() noexcept { return (depth_ & kInCallback) != 0; }
  /// Whether the calling thread neither has a group open nor is in a callback: one comparison.
  static bool outside() noexcept { return depth_ == 0; }
  void start() noexcept { ++depth_; }
  /// Ends one level; the end of the outermost level issues everything. If a collected call was in
  /// error, nothing is issued, creations tell the ranks that they were to meet, and the error is
  /// returned.
  Status end();
  /// Ends one level; the end of the outermost level issues nothing. Returns the error of a
  /// collected call.
  Status drop();

  void add(Call call);
  /// Adds the creation of a communicator. All creations of a group run at the same time, because
  /// they wait for each other; but those with the same `parent` (null: none) one after the other.
  /// A job gets the error of a collected call, with which the creation fails.
  void add_job(const whorlComm* parent, std::function<Status(const Status& refused)> job);
  /// Drops what was collected for a handle that is about to be freed, and fails the group.
  void forget(const whorlComm& handle);
  /// Remembers the error of a call that could not be added.
  void fail_group(const Status& error);
  /// Fails the group where there is no memory for a sentence.
  void fail_group_without_memory() noexcept { out_of_memory_ = true; }

  class CallbackScope;

 private:
  static constexpr int kInCallback = 1 << 30; ///< bit of `depth_`

  // Number of open levels, and whether there is a callback: a word of static TLS, which is read
  // without a call. The C library keeps some space of static TLS for libraries that are loaded
  // later, and this word fits in there.
  [[gnu::tls_model("initial-exec")]] static constinit thread_local int depth_;
  std::vector<Call> calls_;
  struct Job {
    const whorlComm* parent;
    std::function<Status(const Status& refused)> run;
  };
  /// Contents of the group, taken out of it.
  struct Contents {
    std::vector<Call> calls;
    std::vector<Job> jobs;
    Status error; ///< error of a collected call
  };
  Contents take();
  void run_jobs(std::vector<Job> jobs, const Status& refused, Status& pending, Status& error);

  std::vector<Job> jobs_;
  Status error_;
  bool out_of_memory_ = false;
};

/// Time that the calling thread spends in a callback of a stream: in_callback() holds, and the
/// thread's group is put aside. What a group that is opened meanwhile has collected is dropped in
/// the end if it has not been ended.
class Group::CallbackScope {
 public:
  CallbackScope() noexcept
      : group_(std::exchange(current(), Group())),
        depth_(std::exchange(Group::depth_, kInCallback)) {}
  ~CallbackScope() {
    current() = std::move(group_);
    Group::depth_ = depth_;
  }
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;

 private:
  Group group_;
  int depth_;
};

/// Returns kInvalidUsage if the calling thread is in a callback, where `function`, which may wait,
/// is refused.
Status check_may_wait(const char* function);

/// Hands a call on to its communicator, which the calling thread is inside and has found alive.
/// Returns when the call is complete, or in its stream. The handle keeps the communicator's error.
Status issue(const Call& call);

/// Hands calls on to their communicators, where the calls of one communicator form a batch. Returns
/// when the calls without a stream are complete. The handle of each communicator keeps its error,
/// too.
Status issue(std::span<const Call> calls);

} // namespace whorl
