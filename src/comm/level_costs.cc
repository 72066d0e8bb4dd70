#include "comm/level_costs.h"

#include <algorithm>

#include "algorithms/groups.h"

namespace whorl {

Scope common_scope(const PeerInfo& a, const PeerInfo& b) {
  if (a.host_key == b.host_key) {
    const bool cache = a.place.cache >= 0 && a.place.cache == b.place.cache;
    return cache ? Scope::kCache : Scope::kHost;
  }
  if (a.place.leaf != 0 && a.place.leaf == b.place.leaf) return Scope::kLeaf;
  if (a.place.pod != 0 && a.place.pod == b.place.pod) return Scope::kPod;
  return Scope::kNetwork;
}

LinkCosts costs_of_levels(const CostTable& table, const Shape& shape,
                          const std::vector<PeerInfo>& peers) {
  const auto at = [&](int place) -> const PeerInfo& {
    const auto index = static_cast<std::size_t>(place);
    return peers[shape.order.empty() ? index : static_cast<std::size_t>(shape.order[index])];
  };
  auto groups = divisions(shape);
  groups.push_back({0, shape.nranks});
  LinkCosts costs = table.common;
  costs.count = groups.size();
  for (std::size_t level = 0; level < groups.size(); ++level) {
    // Pairs of places that follow each other decide: places are in the order of locality.
    Scope inside = Scope::kCache, outside = Scope::kNetwork;
    const std::vector<int>& starts = groups[level];
    for (int place = 1; place < shape.nranks; ++place) {
      const Scope scope = common_scope(at(place - 1), at(place));
      if (std::binary_search(starts.begin(), starts.end(), place)) {
        outside = std::min(outside, scope);
      } else {
        inside = std::max(inside, scope);
      }
    }
    costs.levels.at(level) = table.scopes.at(static_cast<std::size_t>(inside));
    if (outside <= inside || level + 1 == groups.size()) {
      costs.levels.at(level).boundary_us_per_kib = 0;
    }
  }
  return costs;
}

} // namespace whorl
