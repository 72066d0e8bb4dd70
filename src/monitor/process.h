#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "monitor/snapshot.h"

namespace whorl::monitor {

/// One rank of a process of this machine, seen from outside.
struct ObservedRank {
  /// State of a process whose cgroup is frozen; the kernel has no such letter.
  static constexpr char kFrozen = 'F';

  int pid = 0;      ///< number by which the observer sees the process
  char state = '?'; ///< state of the process as in /proc/PID/stat: R, S, D, T, t; or kFrozen
  Snapshot page;

  /// Returns whether a signal, a debugger or its cgroup has stopped the process.
  bool stopped() const noexcept { return state == 'T' || state == 't' || state == kFrozen; }
  /// Returns whether the rank waits for another one. While a rank runs, it looks about once a
  /// millisecond, so a wait that it has not looked at for long is over.
  bool waits() const noexcept;
  /// Returns whether the process runs and the rank has waited so long that the wait is worth a
  /// question.
  bool waits_long() const noexcept;
  /// Returns the operation under way that began first; null if there is none.
  const RecordedOperation* current() const noexcept;
  /// Returns for how long the rank has waited.
  std::uint64_t waited_ns() const noexcept {
    return page.taken_ns - std::min(page.taken_ns, page.wait.since_ns);
  }
  /// Returns "rank 2 (host node7, pid 4242)".
  std::string name() const;
};

/// Appends the ranks of a process to `out`. Returns 0, or the errno of why the descriptors of the
/// process cannot be read.
int observe_process(int pid, std::vector<ObservedRank>& out);

} // namespace whorl::monitor
