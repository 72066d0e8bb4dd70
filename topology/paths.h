#pragma once

#include <string>
#include <vector>

#include "topology/graph.h"

namespace whorl::topology {

/// Class of the path between two devices, best first, by the names of `nvidia-smi topo -m`.
enum class PathClass : std::uint8_t {
  kSelf,
  kLink, ///< links beside PCI, directly or by NVSwitches: NV4, XGMI2
  kC2C,  ///< links of a package between processor and GPU
  kPix,  ///< path over at most one PCI switch
  kPxb,  ///< several PCI switches, and no processor
  kPhb,  ///< PCI host bridge of a processor
  kNode, ///< several host bridges of one NUMA node
  kSys,  ///< link between NUMA nodes or packages
};

struct Path {
  PathClass path_class = PathClass::kSys;
  LinkKind kind = LinkKind::kNvLink; ///< kind of the links
  int links = 0;                     ///< number of links side by side; 0: unknown, or none
  Bandwidth bandwidth;               ///< bandwidth of the narrowest part whose bandwidth is known
  int hops = 0;                      ///< number of edges of the tree
};

/// Returns the name of a path's class as in a matrix: "NV12", "PIX".
std::string name_of(const Path& path);

/// Finds the best path between two nodes: links if they connect the two, otherwise the tree.
Path find_path(const Graph& graph, int a, int b);

/// Adds `link` to what connects two nodes side by side.
void join(Path& path, const Link& link);
/// Step of a path upwards.
struct Edge {
  int to = -1;
  Bandwidth bandwidth;
};
/// Returns the step from a node towards `top`, which contains the node: by the tree, or by faster
/// ones of `links` to a part that contains the node, as those of a GPU to its processor.
Edge edge_up(const Graph& graph, const std::vector<Link>& links, int node, int top);

/// Returns the links that lead from one node straight to another; the class is kSys if there are
/// none.
Path direct_links(const Graph& graph, int a, int b);
/// Returns the links from a node to NVSwitches, which of a machine are one; the class is kSys if
/// there are none.
Path switch_links(const Graph& graph, int node);
/// Returns all links beside PCI of a GPU together, but for those within a package.
Path all_links(const Graph& graph, int gpu);

/// Returns the NICs that are nearest to a GPU or core, in their order: of those with RDMA if there
/// are any, and without interfaces within the machine if there are others, all that share the best
/// class, a link if any of these has one, and the best rate.
std::vector<int> nearest_nics(const Graph& graph, int node);

} // namespace whorl::topology
