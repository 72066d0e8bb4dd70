#pragma once

#include <string>
#include <vector>

#include "topology/graph.h"

namespace whorl::topology {

/// Parts of a machine that hold a process; numbers of packages, NUMA nodes and last-level caches.
/// −1: several parts hold the process, or the graph has none.
struct Placement {
  int package = -1, numa = -1, cache = -1;

  friend bool operator==(const Placement&, const Placement&) = default;
};

/// Finds the parts that hold all of the processing units `cpus`.
Placement find_placement(const Graph& graph, const CpuSet& cpus);

/// NIC of a process, as its machine's graph shows it.
struct NearNic {
  Bandwidth rate; ///< rate of the port
  int numa = -1;  ///< number of the NUMA node that the NIC is attached to; −1: unknown
};
/// Finds the NIC with the best rate among those that are nearest to the processing units `cpus` and
/// have a link.
NearNic find_near_nic(const Graph& graph, const CpuSet& cpus);

/// Finds the RDMA devices that are nearest to the processing units `cpus` and have a link.
std::vector<std::string> find_near_rdma(const Graph& graph, const CpuSet& cpus);

} // namespace whorl::topology
