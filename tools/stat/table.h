#pragma once

#include <string>
#include <vector>

#include "tools/stat/processes.h"

namespace whorl::stat {

/// Returns a table of what each rank is doing, a line for each, by communicator.
std::string to_table(const std::vector<Rank>& ranks);

/// Returns what a rank is doing, in words: "allreduce number 7 of …: waiting for rank 2 (…) while
/// receiving for 3.2 s".
std::string activity(const Rank& rank);

} // namespace whorl::stat
