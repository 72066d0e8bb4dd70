#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>

#include "perf/common/api.h"
#include "perf/common/options.h"

namespace perf {

/// The launcher that started this process, by the variables it sets; nullptr if there is none.
const char* launcher_name();

/// What the processes that this program forked share with it: an anonymous mapping.
struct Board {
  static constexpr std::size_t kTextBytes = 1500;
  struct Slot {
    std::atomic<int> failed; ///< release by the child when `text` is written; acquire by parent
    char text[kTextBytes];
  };
  std::atomic<int> id_ready; ///< release by process 0 when `id` is written; acquire by the others
  UniqueId id;
  Slot slots[1]; ///< one for each process
};

/// One process of a run.
struct Process {
  int index;    ///< among the processes that the program forked; 0 under a launcher
  int count;    ///< how many it forked; 0 under a launcher
  Board* board; ///< nullptr under a launcher

  /// The id of the run's communicator: made by process 0, awaited by the others. Forked only.
  [[nodiscard]] UniqueId meet() const;
  /// Reports why `who` cannot go on and ends the process at once, so that no other rank waits for
  /// it. The first caller of a process wins.
  [[noreturn]] void fail(const std::string& who, const std::string& sentence) const;
};

/// Runs `body` in every process of the run and returns the program's exit code. Under a launcher
/// that is this process; without one, processes are forked, one for every
/// options.ranks_per_process() ranks, and awaited. If one fails, the parent says which and why,
/// gives the others a few seconds to notice, ends them, and returns 1. The library must not have
/// been used before in this process.
int launch(const Options& options, const std::function<int(const Process&)>& body);

} // namespace perf
