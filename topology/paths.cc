#include "topology/paths.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "topology/devices.h"

namespace whorl::topology {
namespace {

bool is_nvswitch(const Graph& graph, int node) {
  return graph.at(node).kind == NodeKind::kNvSwitch;
}

/// Returns the links between two nodes; the class is kSys if there are none.
Path find_links(const Graph& graph, int a, int b) {
  Path path = direct_links(graph, a, b);
  if (path.path_class != PathClass::kSys) return path;
  const Path one = switch_links(graph, a), other = switch_links(graph, b);
  if (one.path_class != PathClass::kLink || other.path_class != PathClass::kLink) return path;
  path = one;
  path.links = std::min(one.links, other.links);
  if (!one.bandwidth.known() ||
      (other.bandwidth.known() && other.bandwidth.gb_per_s < one.bandwidth.gb_per_s)) {
    path.bandwidth = other.bandwidth;
  }
  return path;
}

/// Returns whether the way from `node` up to the bridge `top` passes another switch.
bool passes_switch(const Graph& graph, int node, int top) {
  for (node = graph.at(node).parent; node != top; node = graph.at(node).parent) {
    const Node& it = graph.at(node);
    if (it.kind == NodeKind::kBridge && it.role != BridgeRole::kDownstreamPort) return true;
  }
  return false;
}

bool has_several(const Graph& graph, NodeKind kind) {
  return graph.counts.at(static_cast<std::size_t>(kind)) > 1;
}

PathClass class_by_tree(const Graph& graph, int a, int b) {
  const int top = graph.common(a, b);
  switch (graph.at(top).kind) {
    case NodeKind::kCard:
      return PathClass::kPix;
    case NodeKind::kBridge:
      return passes_switch(graph, a, top) || passes_switch(graph, b, top) ? PathClass::kPxb
                                                                          : PathClass::kPix;
    case NodeKind::kHostBridge:
      return PathClass::kPhb;
    case NodeKind::kNuma:
      return graph.source == Source::kNccl ? PathClass::kPhb : PathClass::kNode;
    case NodeKind::kCache:
    case NodeKind::kCore:
      return PathClass::kNode;
    default: {
      const bool one_memory = !has_several(graph, NodeKind::kNuma);
      const bool same_package =
          graph.at(top).kind == NodeKind::kPackage || !has_several(graph, NodeKind::kPackage);
      const bool in_memory =
          graph.above(a, NodeKind::kNuma) >= 0 || graph.above(b, NodeKind::kNuma) >= 0;
      return same_package && (one_memory || !in_memory) ? PathClass::kNode : PathClass::kSys;
    }
  }
}

} // namespace

std::string name_of(const Path& path) {
  constexpr std::array<const char*, 8> kNames = {"X",   "NV",  "C2C",  "PIX",
                                                 "PXB", "PHB", "NODE", "SYS"};
  if (path.path_class != PathClass::kLink) {
    return kNames.at(static_cast<std::size_t>(path.path_class));
  }
  const char* const kind = path.kind == LinkKind::kXgmi     ? "XGMI"
                           : path.kind == LinkKind::kXeLink ? "XEL"
                                                            : "NV";
  return path.links == 0 ? fmt::format("{}?", kind) : fmt::format("{}{}", kind, path.links);
}

void join(Path& path, const Link& link) {
  path.path_class = link.kind == LinkKind::kC2C ? PathClass::kC2C : PathClass::kLink;
  path.kind = link.kind;
  path.links += link.count;
  if (!link.bandwidth.known()) return;
  path.bandwidth.gb_per_s += link.bandwidth.gb_per_s;
  path.bandwidth.origin = link.bandwidth.origin;
}

Edge edge_up(const Graph& graph, const std::vector<Link>& links, int node, int top) {
  Edge edge{.to = graph.at(node).parent, .bandwidth = graph.at(node).up};
  for (const Link& link : links) {
    // What contains a node comes before it.
    if (link.b != node || graph.common(link.a, node) != link.a ||
        graph.common(link.a, top) != top || !link.bandwidth.known() ||
        link.bandwidth.gb_per_s <= edge.bandwidth.gb_per_s) {
      continue;
    }
    edge = {.to = link.a, .bandwidth = link.bandwidth};
  }
  return edge;
}

Path find_path(const Graph& graph, int a, int b) {
  if (a == b) return {.path_class = PathClass::kSelf};
  Path path = find_links(graph, a, b);
  if (path.path_class != PathClass::kSys) return path;
  path.path_class = class_by_tree(graph, a, b);
  const int top = graph.common(a, b);
  for (int node : {a, b}) {
    while (node != top) {
      ++path.hops;
      const Edge up = edge_up(graph, graph.links, node, top);
      if (up.bandwidth.known() &&
          (!path.bandwidth.known() || up.bandwidth.gb_per_s < path.bandwidth.gb_per_s)) {
        path.bandwidth = up.bandwidth;
      }
      node = up.to;
    }
  }
  return path;
}

Path direct_links(const Graph& graph, int a, int b) {
  Path path;
  for (const Link& link : graph.links) {
    if (link.a == std::min(a, b) && link.b == std::max(a, b)) join(path, link);
  }
  return path;
}

Path switch_links(const Graph& graph, int node) {
  Path path;
  for (const Link& link : graph.links) {
    if ((link.a == node && is_nvswitch(graph, link.b)) ||
        (link.b == node && is_nvswitch(graph, link.a))) {
      join(path, link);
    }
  }
  return path;
}

Path all_links(const Graph& graph, int gpu) {
  Path path;
  for (const Link& link : graph.links) {
    if ((link.a == gpu || link.b == gpu) && link.kind != LinkKind::kC2C) join(path, link);
  }
  return path;
}

std::vector<int> nearest_nics(const Graph& graph, int node) {
  std::vector<int> nics = graph.all(NodeKind::kNic);
  const auto rdma = [&](int nic) { return graph.at(nic).rdma; };
  const auto real = [&](int nic) { return !named_as_virtual(graph.at(nic).name); };
  const auto prefer = [&](const auto& preferred) {
    if (std::none_of(nics.begin(), nics.end(), preferred)) return;
    std::erase_if(nics, [&](int nic) { return !preferred(nic); });
  };
  prefer(rdma);
  prefer(real);
  const int package = graph.above(node, NodeKind::kPackage);
  // Smaller is nearer. Where packages have several NUMA nodes, so is a NIC at the same package;
  // where switches are stacked, the one behind fewer of them. A rate that is unknown counts as the
  // lowest.
  const auto rank = [&](int nic) {
    const Path path = find_path(graph, node, nic);
    const bool rated = graph.at(nic).up.known();
    const int other = graph.above(nic, NodeKind::kPackage);
    return std::make_tuple(
        path.path_class, graph.at(nic).down,
        path.path_class == PathClass::kSys && package >= 0 && other >= 0 && package != other,
        path.path_class == PathClass::kPxb ? path.hops : 0, rated ? -path.bandwidth.gb_per_s : 0);
  };
  std::vector<int> nearest;
  for (const int nic : nics) {
    if (!nearest.empty() && rank(nic) < rank(nearest.front())) nearest.clear();
    if (nearest.empty() || rank(nic) == rank(nearest.front())) nearest.push_back(nic);
  }
  return nearest;
}

} // namespace whorl::topology
