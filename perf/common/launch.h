#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>

#include "perf/common/api.h"
#include "perf/common/options.h"

namespace perf {

/// Returns the name of the launcher that started this process, found by the variables it sets;
/// nullptr if there is none.
const char* launcher_name();

/// Memory that the forked processes of this program share: an anonymous mapping.
struct Board {
  static constexpr std::size_t kTextBytes = 1500;
  struct Slot {
    std::atomic<int> failed; ///< release by the child once `text` is written; acquire by the parent
    char text[kTextBytes];
  };
  std::atomic<int> id_ready; ///< release by process 0 once `id` is written; acquire by the others
  UniqueId id;
  Slot slots[1]; ///< one slot for each process
};

/// Process of a run.
struct Process {
  int index;    ///< number among the forked processes of the program; 0 under a launcher
  int count;    ///< number of forked processes; 0 under a launcher
  Board* board; ///< shared memory; nullptr under a launcher

  /// Returns the id of the run's communicator: process 0 makes it, the others wait for it. Forked
  /// processes only.
  [[nodiscard]] UniqueId meet() const;
  /// Reports why `who` cannot continue and ends the process at once, so that no other rank waits
  /// for it. Of several threads that call fail(), the first one reports.
  [[noreturn]] void fail(const std::string& who, const std::string& sentence, int status = 1) const;
};

/// Runs `body` in every process of the run and returns the program's exit code. Under a launcher
/// the run has this process alone; without a launcher, one process is forked for every
/// options.ranks_per_process() ranks, and awaited. If one process fails, the parent prints which
/// and why, gives the others a few seconds to notice, kills them, and returns 1. The library must
/// not have been used before in this process.
int launch(const Options& options, const std::function<int(const Process&)>& body);

} // namespace perf
