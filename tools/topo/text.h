#pragma once

#include <string>

#include "topology/graph.h"

namespace whorl::topology {

/// Parts of a description; none of them stands for all.
struct Parts {
  bool tree = false, matrix = false, nics = false, rings = false, bound = false;

  bool any() const { return tree || matrix || nics || rings || bound; }
};

/// Describes a machine in words.
std::string describe(const Graph& graph, Parts parts);

/// Describes which processors, GPU and NICs each of `ranks` ranks should have: as a table, as
/// commands, and what is wrong with the best that there is.
std::string describe_binding(const Graph& graph, int ranks);

} // namespace whorl::topology
