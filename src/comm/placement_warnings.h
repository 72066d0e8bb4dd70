#pragma once

#include <string>
#include <vector>

#include "base/membership.h"

namespace whorl {

/// Returns how many ranks there are for each processing unit that `rank` may use, counting ranks
/// that may use no others; 1 if its place is unknown.
double ranks_per_processor(const Membership& members, int rank);

/// Returns whether `rank` may use more processing units than there are ranks that may use no
/// others; true if its place is unknown.
bool has_spare_processor(const Membership& members, int rank);

/// Returns sentences about ranks on the machine of `rank` that are placed badly: bound to
/// processing units that are too few for them while others are free, or all far from the NIC while
/// there are several hosts. `online` is the number of processing units of the machine.
std::vector<std::string> placement_warnings(const Membership& members, int rank, int online);

/// Logs placement_warnings(), if this rank is the first one of its machine. Ranks of other
/// communicators may use what seems free here, so only the first communicator of several ranks that
/// a process makes is judged, as a rule that of all ranks of the job.
void warn_of_places(const Membership& members);

} // namespace whorl
