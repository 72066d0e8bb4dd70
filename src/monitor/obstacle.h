#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "monitor/process.h"

namespace whorl::monitor {

/// Returns a time as "3.2 s" or "12 ms".
std::string duration(std::uint64_t ns);

/// Returns what a rank is doing, in words: "allreduce number 7 of …: waiting for rank 2 (…) while
/// receiving for 3.2 s".
std::string activity(const ObservedRank& rank);

/// Returns why `rank`, for which `waiter` waits in the same communicator, does not go on, in words;
/// empty if it waits for another itself. `others` has the ranks of the process of `rank`, maybe
/// among those of other processes.
std::string obstacle(const ObservedRank& rank, const ObservedRank& waiter,
                     const std::vector<ObservedRank>& others);

} // namespace whorl::monitor
