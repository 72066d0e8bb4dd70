#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/event.h"
#include "device/common/group.h"
#include "device/common/path.h"
#include "device/kernel/schedule_local.h"
#include "gpu/driver.h"
#include "gpu/work.h"

namespace whorl {

/// The ranks of a communicator that are all in this process.
class LocalDeviceGroup final : public DeviceGroup {
 public:
  LocalDeviceGroup(const Membership& members, const DeviceRules& rules)
      : name_(members.name),
        names_(members.names()),
        ranks_(static_cast<std::size_t>(members.nranks)) {
    const auto algo = device_algo();
    if (algo.ok()) algo_ = *algo;
    algo_error_ = algo.status();
    if (ranks_.size() <= gpu::kMaxRanks) {
      schedules_ = std::make_unique<DeviceSchedules>(members, rules);
    }
  }
  ~LocalDeviceGroup() override {
    for (auto& [number, operation] : operations_) give_back_events(operation);
    for (const auto& [context, idle] : idle_events_) {
      if (!gpu::is_same_context(context, idle.context_id)) continue;
      const gpu::ContextGuard guard(context);
      for (const CUevent event : idle.all) static_cast<void>(gpu::driver()->cuEventDestroy(event));
    }
    if (done_ == nullptr || !gpu::is_same_context(done_context_, done_context_id_)) return;
    const gpu::ContextGuard guard(done_context_);
    static_cast<void>(gpu::driver()->cuEventDestroy(done_));
  }

  Status check(int rank, const Request& request, Stream* stream) const override;
  std::uint64_t post(int rank, const Request& request, Stream* stream,
                     std::uint64_t timeout_ns) override;
  Result<Met> meet(int rank, std::uint64_t number, const WaitPolicy& policy,
                   const CommError& comm_error, Waiter& waiter) override;
  void stop() noexcept override;
  Status failure() override;
  /// Notes that a rank takes part in no operation any more. Each later one is left to the host,
  /// which finds out that the rank has left.
  void leave_for_good(int rank) noexcept;

 private:
  struct Rank {
    std::uint64_t posted = 0; ///< number of operations so far
    /// Whether the rank has destroyed its communicator. Without the mutex, which a launch may hold
    /// until some stream goes on.
    std::atomic<bool> left_for_good{false};
  };
  struct Post {
    bool made = false;
    Request request;
    CUstream stream = nullptr; ///< the device's stream of the call; null for a call on the host
    /// Thread of the call, if `stream` means a different stream in each thread.
    std::optional<pthread_t> thread;
    CUcontext context = nullptr;
    CUevent ready = nullptr; ///< the point of the stream at which the post was made
    bool captured = false;   ///< whether the stream is being captured into a graph
    bool on_device = false;
    std::uint64_t timeout_ns = 0;
    Status error; ///< error of recording the event
  };
  struct Operation {
    std::vector<Post> posts;
    std::size_t made = 0; ///< number of posts
    std::size_t left = 0; ///< number of ranks that have seen the outcome, or need none
    bool decided = false;
    Met met = Met::kHost; ///< the outcome, once decided
    Status error;
    std::vector<gpu::Work> works; ///< launches, where one kernel carries out the operation
  };

  /// Events of a context.
  struct Events {
    std::uint64_t context_id = 0; ///< id of the context, see gpu::id_of(); 0: not known yet
    std::vector<CUevent> all;
  };

  void add(std::uint64_t number, Operation& operation, std::size_t rank, Post post);
  void add_leavers(std::uint64_t number, Operation& operation);
  Status record_ready(Post& post);
  void give_back_events(Operation& operation);
  bool may_go_on_device(int rank, const Request& request, CUcontext context) const;
  void decide(Operation& operation);
  static Status prepare_fused(Operation& operation);
  DevicePath path_of(const std::vector<Post>& posts);
  Result<bool> launch(Operation& operation, DevicePath path);
  Status launch_fused(Operation& operation);
  Status check_captures(const std::vector<Post>& posts) const;
  Status check_joined(const std::vector<Post>& posts) const;
  Status check_alike(const std::vector<Post>& posts) const;
  void leave(std::uint64_t number, Operation& operation);
  Status late(const Operation& operation, int rank, std::uint64_t timeout_ns) const;

  const std::string name_;
  const std::vector<std::string> names_;
  std::mutex mutex_;
  Event event_; ///< event of an operation that has been decided
  std::vector<Rank> ranks_;
  std::map<std::uint64_t, Operation> operations_; ///< operations that some rank has not left
  std::map<CUcontext, Events> idle_events_;       ///< events that no post uses
  Status failure_; ///< error of an operation, with which the communicator ends
  CUevent done_ = nullptr;
  CUcontext done_context_ = nullptr;
  std::uint64_t done_context_id_ = 0;
  DeviceAlgo algo_ = DeviceAlgo::kAny;
  Status algo_error_;
  std::unique_ptr<DeviceSchedules> schedules_; ///< null with too many ranks
  std::mutex schedules_mutex_;                 ///< guard of schedules_, taken after mutex_
  /// Whether an operation had its buffers in several contexts. A hint, which ranks may see at
  /// different operations.
  std::atomic<bool> several_contexts_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> launched_{false}; ///< true once schedules_ has the flags that stop() sets
};

} // namespace whorl
