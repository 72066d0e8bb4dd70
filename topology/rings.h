#pragma once

#include <vector>

#include "topology/graph.h"

namespace whorl::topology {

/// Order of devices in which each sends to the next, and the last to the first.
struct Ring {
  std::vector<int> order;  ///< nodes of the graph
  bool over_links = false; ///< whether all neighbours are connected by links beside PCI
  int copies = 1;          ///< rings of this order at the same time, over links of their own
  Bandwidth bandwidth;     ///< bandwidth of the narrowest part, for one copy
};

/// Finds rings through all `devices`, at least two, that share no link in the same direction; as
/// many as a search of bounded length finds. If links do not connect all in a ring, returns one
/// ring in the order of the machine's tree, which crosses each boundary once in each direction.
std::vector<Ring> find_rings(const Graph& graph, std::vector<int> devices);

} // namespace whorl::topology
