#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/faults/mismatch_matrix.h"

namespace whorl::test {

inline constexpr int kMismatchRanks = 3;

/// Outcome of a case on all ranks.
struct MismatchOutcome {
  std::string wrong;      ///< what cannot be a known flaw: crashes, hangs
  std::uint8_t flaws = 0; ///< bits of Flaw
  std::string texts;      ///< errors of all ranks
  double ms = 0;          ///< longest time until a rank had its error
};

/// Runs cases of equal transport, operation and size, each on a communicator of its own, with one
/// set of processes.
std::vector<MismatchOutcome> run_mismatches(const std::vector<MismatchCase>& cases);

} // namespace whorl::test
