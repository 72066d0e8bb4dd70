#pragma once

#include <cstddef>
#include <string>

#include "algorithms/cost_model.h"

namespace whorl {

/// Lower bound of the time of an operation, whatever the algorithm.
struct LeastTime {
  double us = 0;
  /// Words for what sets the bound, such as "the boundary of each host".
  std::string limit;
};

/// Computes the largest of these times, by the costs of the links: a round between groups of the
/// outermost level; reading or writing each rank's larger side once; what has to cross the boundary
/// of a group, or the link of a rank (see least_crossing()), at the rate of that boundary or link.
LeastTime least_time(Collective collective, const Shape& shape, std::size_t bytes,
                     const LinkCosts& links);

} // namespace whorl
