#pragma once

#include <string>

#include "topology/graph.h"

namespace whorl::topology {

/// Returns the graph with its answers as JSON: nodes, links, the path of each pair of GPUs and
/// NICs, the nearest NICs of each GPU, rings, and the bound of each collective. Nodes are
/// named by their `id`.
std::string to_json(const Graph& graph);

} // namespace whorl::topology
