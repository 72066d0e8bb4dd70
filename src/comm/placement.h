#pragma once

#include <optional>
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

/// Returns the processing unit on which `rank` begins if the ranks that may use the same ones are
/// spread evenly; none if they are fewer than these units, or if its process has several ranks.
std::optional<unsigned> first_processor(const Membership& members, int rank);

/// Moves the calling thread to first_processor(), if this is the first communicator of several
/// ranks that the process makes. The thread may run afterwards wherever it might before, and the
/// scheduler decides: but the scheduler takes a tenth of a second to spread ranks that have begun
/// on one core, since they never sleep long enough. (A set of processing units that is widened
/// later for the whole process, by its cpuset, does not widen that of this thread.)
void spread_over_processors(const Membership& members) noexcept;

/// Returns sentences about ranks on the machine of `rank` that are placed badly: bound to
/// processing units that are too few for them while others are free, or all far from the NIC while
/// there are several hosts. `online` is the number of processing units of the machine.
std::vector<std::string> placement_warnings(const Membership& members, int rank, int online);

/// Logs placement_warnings(), if this rank is the first one of its machine. Ranks of other
/// communicators may use what seems free here, so only the first communicator of several ranks that
/// a process makes is judged, as a rule that of all ranks of the job.
void warn_of_places(const Membership& members);

} // namespace whorl
