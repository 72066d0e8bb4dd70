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

/// What collectives of one depth of callbacks run on.
struct Lane {
  std::shared_ptr<Communicator> comm;
  std::shared_ptr<WorkQueue> queue;
  std::shared_ptr<DeviceStreams> streams;
};

/// What one process group runs on, and how that ends: by shutdown, by the group's destructor, or by
/// the exit of the interpreter, whichever comes first.
struct Members {
  explicit Members(const Communicator::Place& place, whorlComm_t existing);
  /// A forked child leaves everything alone: threads and connections are its parent's.
  bool in_process_that_made_it() const;
  /// Waits up to `patience` for what is under way, then interrupts it. Idempotent. Releases the
  /// interpreter's lock meanwhile, because a thread of the group may need it to end.
  /// Throws in the handler of a signal that has come while its thread carries an operation out:
  /// what ends the group would wait for that.
  static void refuse_in_step();
  void shut_down(std::chrono::milliseconds patience);
  void abort(const std::exception_ptr& reason);

  /// That of the collectives which the program issues (0), the callbacks of those (1), and so on;
  /// made when first asked for.
  Lane lane(int depth);
  void set_timeout(std::chrono::milliseconds timeout);
  /// What has happened to the first of its communicators that is not well.
  whorlResult_t state();

  const std::shared_ptr<PointToPoint> p2p;

 private:
  std::vector<Lane> lanes();
  Lane make_lane(int depth, whorlComm_t existing) const;

  Communicator::Place place_;
  std::mutex mutex_; ///< of what follows, and of place_.timeout
  std::vector<Lane> lanes_;
  std::exception_ptr ended_; ///< for lanes that are made afterwards
  const int process_;
  std::atomic<bool> shut_down_{false};
};

std::shared_ptr<Members> make_members(const Communicator::Place& place, whorlComm_t existing);
/// For the destructor of the group.
void end_members(std::shared_ptr<Members> members);
/// For the exit of the interpreter: shuts down all groups that are left.
void shut_down_all_groups();

inline constexpr std::chrono::milliseconds kPatience{10'000}, kExitPatience{3'000};

} // namespace whorl_torch
