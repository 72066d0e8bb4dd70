#pragma once

#include <string>
#include <vector>

#include "tools/stat/processes.h"

namespace whorl::stat {

/// Returns a table of what each rank is doing, a line for each, by communicator.
std::string to_table(const std::vector<Rank>& ranks);

} // namespace whorl::stat
