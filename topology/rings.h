#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "topology/graph.h"

namespace whorl::topology {

/// Ways of a ring from each device to the next.
enum class RingWay : std::uint8_t {
  kLinks, ///< links beside PCI only
  kTree,  ///< the tree of the machine only
  kMixed, ///< links where neighbours have some, otherwise the tree
};
std::string_view name_of(RingWay way);

/// Order of devices in which each sends to the next, and the last to the first, on the ways that
/// find_path() describes.
struct Ring {
  std::vector<int> order; ///< nodes of the graph
  RingWay way = RingWay::kTree;
  int copies = 1;      ///< rings of this order at the same time, over links of their own
  Bandwidth bandwidth; ///< bandwidth that one copy has while all rings run
};

/// Finds rings through all `devices`, at least two, that together carry as much as a search of
/// bounded length finds; no part of the machine carries more than its capacity, if that is known.
/// The rings are one of these:
/// - rings over links alone, each over links of its own, and others over what these leave;
/// - rings that share links and PCI, if they carry more together;
/// - without links one ring in the order of the machine's tree, which crosses each boundary once in
///   each direction, as any ring must at least, so that no rings carry more.
std::vector<Ring> find_rings(const Graph& graph, std::vector<int> devices);

} // namespace whorl::topology
