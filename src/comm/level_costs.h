#pragma once

#include <vector>

#include "algorithms/shape.h"
#include "base/membership.h"
#include "base/scope.h"
#include "tuning/cost_table.h"

namespace whorl {

/// Returns the smallest part of the job that two ranks are known to share.
Scope common_scope(const PeerInfo& a, const PeerInfo& b);

/// Returns the costs of a communicator's levels, from those by scope. The boundary of a group
/// counts only where no other group is in the same part: groups of one host, say, share its NIC.
LinkCosts costs_of_levels(const CostTable& table, const Shape& shape,
                          const std::vector<PeerInfo>& peers);

} // namespace whorl
