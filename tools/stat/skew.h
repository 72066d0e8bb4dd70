#pragma once

#include <string>
#include <vector>

#include "tools/stat/processes.h"

namespace whorl::stat {

/// Time that one rank has cost the others.
struct Skew {
  int rank = 0, pid = 0;
  int last = 0;                    ///< number of operations in which this rank came last
  std::uint64_t late_ns = 0;       ///< sum, over these, of the time from the arrival before
  std::uint64_t cost_ns = 0;       ///< sum, over these, of the time that all others waited for it
  std::uint64_t waited_for_ns = 0; ///< time that others waited for messages of this rank since the
                                   ///< creation, in waits of more than a millisecond
};

/// Stragglers of one communicator.
struct SkewReport {
  int operations = 0; ///< number of collectives that all ranks of this machine remember
  std::vector<Skew> ranks;
};

/// Compares when the ranks of a communicator that are on this machine began their last collectives.
SkewReport find_skew(const std::vector<Rank>& communicator);

/// Returns a table of the stragglers of each communicator.
std::string to_skew_table(const std::vector<Rank>& ranks);

} // namespace whorl::stat
