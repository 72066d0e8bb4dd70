#pragma once

#include <string>
#include <vector>

#include "tools/stat/processes.h"

namespace whorl::stat {

/// Follows, in each communicator, from each rank that waits for long the chain of ranks that wait
/// for one another. Returns a sentence for each rank at the end of chains, which says who waits for
/// it, why it does not go on, and what helps. Empty: nobody waits.
std::vector<std::string> find_culprits(const std::vector<Rank>& ranks);

} // namespace whorl::stat
