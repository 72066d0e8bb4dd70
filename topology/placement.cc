#include "topology/placement.h"

#include "topology/paths.h"

namespace whorl::topology {
namespace {

/// Returns the node of a kind that holds all of `cpus`, the first one if caches are nested; −1:
/// there is none.
int holder(const Graph& graph, NodeKind kind, const CpuSet& cpus) {
  if (cpus.empty()) return -1;
  for (const int node : graph.all(kind)) {
    if (graph.at(node).cpus.includes(cpus)) return node;
  }
  return -1;
}

int number_of(const Graph& graph, int node) { return node < 0 ? -1 : graph.at(node).index; }

/// Returns the NUMA node or package that holds all of `cpus`, or else the machine.
int smallest_holder(const Graph& graph, const CpuSet& cpus) {
  int node = 0;
  for (const NodeKind kind : {NodeKind::kPackage, NodeKind::kNuma}) {
    if (const int part = holder(graph, kind, cpus); part >= 0) node = part;
  }
  return node;
}

} // namespace

Placement find_placement(const Graph& graph, const CpuSet& cpus) {
  return {.package = number_of(graph, holder(graph, NodeKind::kPackage, cpus)),
          .numa = number_of(graph, holder(graph, NodeKind::kNuma, cpus)),
          .cache = number_of(graph, holder(graph, NodeKind::kCache, cpus))};
}

NearNic find_near_nic(const Graph& graph, const CpuSet& cpus) {
  NearNic best;
  bool found = false;
  for (const int nic : nearest_nics(graph, smallest_holder(graph, cpus))) {
    const Node& port = graph.at(nic);
    if (port.down || (found && port.up.gb_per_s <= best.rate.gb_per_s)) continue;
    best = {.rate = port.up, .numa = number_of(graph, graph.above(nic, NodeKind::kNuma))};
    found = true;
  }
  return best;
}

std::vector<std::string> find_near_rdma(const Graph& graph, const CpuSet& cpus) {
  std::vector<std::string> names;
  for (const int nic : nearest_nics(graph, smallest_holder(graph, cpus))) {
    const Node& port = graph.at(nic);
    if (port.rdma && !port.down) names.push_back(port.name);
  }
  return names;
}

} // namespace whorl::topology
