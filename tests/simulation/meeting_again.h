#pragma once

#include <span>
#include <vector>

#include "simulation/communicators.h"

namespace whorl::simulation {

/// Outcome of shrink() on a rank: with whom it met.
struct MetAgain {
  std::vector<int> members; ///< old ranks that it has met, itself included; empty: none
  Status error;
  Identity identity;
  bool shrinks = false; ///< whether it has begun to meet others
};

/// Aborts the communicator of a rank and shrinks it, with a list of ranks that do not go on or, if
/// that is empty, without one. Asks the ranks that have been met who they are.
void meet_again(CommRank& rank, std::span<const int> excluded, MetAgain& self);

} // namespace whorl::simulation
