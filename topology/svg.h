#pragma once

#include <string>

#include "topology/graph.h"

namespace whorl::topology {

/// Draws the machine as an SVG picture: packages, NUMA nodes, caches and PCI switches as boxes in
/// each other, with cores, GPUs and NICs inside; below, the links between GPUs beside PCI, in a
/// colour and width for each bandwidth. Many equal cores or caches are one box. The text is
/// well-formed XML whatever the names of the parts are.
std::string to_svg(const Graph& graph);

} // namespace whorl::topology
