#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "monitor/snapshot.h"

namespace whorl::stat {

/// One rank of a process of this machine.
struct Rank {
  int pid = 0;      ///< number by which this program sees the process
  char state = '?'; ///< state of the process as in /proc/PID/stat: R, S, D, T, t
  monitor::Snapshot page;

  /// Whether a signal or a debugger has stopped the process.
  bool stopped() const noexcept { return state == 'T' || state == 't'; }
  /// Whether the rank waits for another one. While a rank runs, it looks about once a millisecond,
  /// so a wait that it has not looked at for long is over.
  bool waits() const noexcept;
  /// Returns the operation under way that began first; null if there is none.
  const monitor::RecordedOperation* current() const noexcept;
  /// Returns for how long the rank has waited.
  std::uint64_t waited_ns() const noexcept {
    return page.taken_ns - std::min(page.taken_ns, page.wait.since_ns);
  }
  /// Returns "rank 2 (host node7, pid 4242)".
  std::string name() const;
};

/// What a look at processes has found.
struct Found {
  std::vector<Rank> ranks; ///< by communicator, then rank
  int unreadable = 0;      ///< number of processes whose descriptors may not be read
};

/// Reads the pages of all processes that this user may see, or of those with these numbers. The
/// error names a process that does not exist or may not be read.
Result<Found> find_ranks(const std::vector<int>& pids);

/// Splits ranks, in the order of find_ranks(), by communicator.
std::vector<std::vector<Rank>> by_communicator(std::vector<Rank> ranks);

/// Returns a time as "3.2 s" or "12 ms".
std::string duration(std::uint64_t ns);

} // namespace whorl::stat
