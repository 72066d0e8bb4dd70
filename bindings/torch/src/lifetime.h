#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "bindings/torch/src/communicator.h"
#include "bindings/torch/src/executor.h"
#include "bindings/torch/src/p2p.h"

namespace whorl_torch {

/// Communicator, queue and streams of the collectives of one depth of callbacks.
struct Lane {
  std::shared_ptr<Communicator> comm;
  std::shared_ptr<WorkQueue> queue;
  std::shared_ptr<DeviceStreams> streams;
};

/// Communicators, queues and threads of one process group, which end by shutdown, by the group's
/// destructor, or by the exit of the interpreter, whichever comes first.
struct GroupResources {
  explicit GroupResources(const Communicator::Place& place, whorlComm_t existing);
  /// Returns whether this process made the group. A forked child leaves everything alone: threads
  /// and connections are its parent's.
  bool in_process_that_made_it() const;
  /// Throws in the handler of a signal that interrupts a step of its thread: the end of the group
  /// would wait for the end of that step.
  static void refuse_in_step();
  /// Waits until the deadline for what is under way, then interrupts it. Idempotent. Releases the
  /// interpreter's lock meanwhile, because a thread of the group may need it to end.
  void shut_down(Deadline deadline);
  void abort(const std::exception_ptr& reason);

  /// Returns the lane of the collectives that the program issues (0), of those that their callbacks
  /// issue (1), and so on. A lane is made when it is first asked for.
  Lane lane(int depth);
  void set_timeout(std::chrono::milliseconds timeout);
  /// Returns the first error among the communicators; whorlSuccess if there is none.
  whorlResult_t state();

  const std::shared_ptr<PointToPoint> p2p;

 private:
  std::vector<Lane> lanes();
  Lane make_lane(int depth, whorlComm_t existing) const;

  Communicator::Place place_;
  std::mutex mutex_; ///< guards place_.timeout, lanes_ and ended_
  std::vector<Lane> lanes_;
  std::exception_ptr ended_; ///< reason of the end, for lanes that are made afterwards
  const int process_;
  std::atomic<bool> shut_down_{false};
};

std::shared_ptr<GroupResources> make_resources(const Communicator::Place& place,
                                               whorlComm_t existing);
/// Shuts the group down, from its destructor.
void end_resources(std::shared_ptr<GroupResources> resources);
/// Shuts down all groups that are left, at the exit of the interpreter.
void shut_down_all_groups();

inline constexpr std::chrono::milliseconds kShutdownGrace{10'000}, kExitGrace{3'000};

} // namespace whorl_torch
