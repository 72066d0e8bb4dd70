#pragma once

#include <cstdint>
#include <string>

#include "tests/faults/kill_matrix.h"

namespace whorl::test {

inline constexpr int kKillRanks = 4; ///< ranks of a case: most algorithms take a power of two

/// Outcome of a case on all ranks.
struct KillOutcome {
  std::string wrong;      ///< what cannot be a known flaw
  std::uint8_t flaws = 0; ///< bits of Flaw
  std::string texts;      ///< errors of the ranks with flaws
  double ms = 0;          ///< duration of the longest call that failed, without the deadline
};

/// Runs a case on ranks that are processes.
KillOutcome run_kill_case(const KillCase& c);

} // namespace whorl::test
