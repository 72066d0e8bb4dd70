#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "whorl/whorl.h"

namespace whorl_torch {

/// Who the ranks of a group are: which of them have ended, as far as this host can tell, for the
/// time in which no communicator watches them; and where they can be met. They tell each other
/// through the store which processes they are, and all of it through their first communicator, so
/// that the store is not needed any more. Any thread.
class RollCall {
 public:
  /// Enters this process as `rank`. `prefix` is that of the keys.
  RollCall(c10::intrusive_ptr<c10d::Store> store, std::string prefix, int rank);
  /// Whether the process of a rank is known to have ended, orderly or not. Never throws: a rank
  /// that is not entered yet, or is on another host, has not ended.
  bool has_ended(int rank) noexcept;
  /// Collective over `comm`, which has the `size` ranks of the group; before anything else is done
  /// with the group. Throws.
  void exchange(whorlComm_t comm, int size);
  /// Finds the point at which a rank can be met; null before exchange().
  const whorlUniqueId* meeting_point(int rank) const {
    return points_.empty() ? nullptr : &points_[static_cast<std::size_t>(rank)];
  }

 private:
  struct Process {
    std::string host; ///< empty: not known
    long id = 0;
    unsigned long long started = 0; ///< ticks since boot; ids are used again
  };
  static Process parse(const std::string& entry);
  static Process self();
  static bool ended(const Process& process);

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string prefix_;
  const Process self_;
  std::mutex mutex_; ///< of entries_
  std::map<int, Process> entries_;
  std::vector<whorlUniqueId> points_; ///< of all ranks
};

} // namespace whorl_torch
