#pragma once

#include <vector>

#include "monitor/process.h"

namespace whorl::stat {

using Rank = monitor::ObservedRank;

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

} // namespace whorl::stat
