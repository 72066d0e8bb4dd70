#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "whorl/whorl.h"

namespace whorl_torch {

/// Processes of the ranks of a group, which of these have ended while no communicator watches them
/// (as far as this host can tell), and the points at which the processes can be met. Ranks
/// enter their processes in the store, and exchange everything through their first communicator,
/// after which the store is not needed any more. Any thread.
class ProcessLiveness {
 public:
  /// Enters this process as `rank`. `prefix` is that of the keys.
  ProcessLiveness(c10::intrusive_ptr<c10d::Store> store, std::string prefix, int rank);
  /// Lets has_ended() ask another group about ranks that are not entered yet; `ranks` are their
  /// numbers there. To be called before any other use.
  void fall_back_on(std::shared_ptr<ProcessLiveness> other, std::vector<std::uint64_t> ranks);
  /// Returns whether the process of a rank is known to have ended, orderly or not; false for a rank
  /// that is entered in neither group yet, or is on another host.
  bool has_ended(int rank) noexcept;
  /// Exchanges processes and meeting points over `comm`, which has the `size` ranks of the group.
  /// Collective, before any other use of the group. Throws.
  void exchange(whorlComm_t comm, int size);
  /// Finds the point at which a rank can be met; null before exchange().
  const whorlUniqueId* meeting_point(int rank) const {
    return points_.empty() ? nullptr : &points_[static_cast<std::size_t>(rank)];
  }

 private:
  struct Process {
    std::string host; ///< boot and namespaces of the host; empty: not known
    long id = 0;
    unsigned long long started = 0; ///< start in ticks since boot, because ids are used again
  };
  static Process parse(const std::string& entry);
  static Process self();
  static bool ended(const Process& process);

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string prefix_;
  const Process self_;
  std::mutex mutex_; ///< guards entries_
  std::map<int, Process> entries_;
  std::shared_ptr<ProcessLiveness> other_; ///< processes of the default group; may be null
  std::vector<std::uint64_t> other_ranks_; ///< numbers of the ranks there
  std::vector<whorlUniqueId> points_;      ///< meeting points of all ranks; empty before exchange()
};

} // namespace whorl_torch
