#pragma once

#include <array>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/groups.h"

namespace whorl {

/// Counts the bytes that leave or enter the busiest group of each division of the shape (see
/// divisions()), whichever are more, divided by those of the larger side of the operation. Counted
/// in schedules: with more than 32 ranks only of the group of the root and of the largest group,
/// and of at most 32 places of each.
std::array<double, kMaxLevels - 1> crossings(const Algorithm& algorithm, const Shape& shape);

/// Returns the least that any algorithm has to send over the boundary of the group for which that
/// is most; `sizes` are the sizes of all groups, of one place or more. The same unit as
/// crossings().
///
/// The bounds: a group without the root needs the vector, or has to give its part; of a
/// reduce-scatter or all-gather, the blocks of all others; of an allreduce, both (P. Patarasuk, X.
/// Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations", 2009).
double least_crossing(Collective collective, const std::vector<int>& sizes);

} // namespace whorl
