#pragma once

#include "algorithms/algorithm.h"

namespace whorl {

/// Forms of "hierarchical" for the groups of Shape::groups: allreduce, reduce-scatter, all-gather.
bool uneven_supports(const Shape& shape);
Schedule build_uneven(const Shape& shape, int place, Collective collective);
Cost uneven_cost(const Shape& shape, Collective collective);

} // namespace whorl
