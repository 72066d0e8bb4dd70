#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/event.h"
#include "device/common/group.h"
#include "device/common/path.h"
#include "device/kernel/schedule_local.h"
#include "gpu/driver.h"

namespace whorl {

/// The ranks of a communicator that are all in this process.
class LocalDeviceGroup final : public DeviceGroup {
 public:
  LocalDeviceGroup(const Membership& members, const DeviceRules& rules)
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
  ~LocalDeviceGroup() override {
    for (auto& [number, operation] : operations_) give_back_events(operation);
    for (const auto& [context, events] : idle_events_) {
      const gpu::ContextGuard guard(context);
      for (const CUevent event : events) static_cast<void>(gpu::driver()->cuEventDestroy(event));
    }
    if (done_ == nullptr) return;
    const gpu::ContextGuard guard(done_context_);
    static_cast<void>(gpu::driver()->cuEventDestroy(done_));
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

} // namespace whorl
