#pragma once

#include <string>

#include "topology/graph.h"

namespace whorl::topology {

/// Adds to the NICs of a graph what Linux says of their ports: rate, whether they have a link. Adds
/// RDMA devices that are on no PCI bus (software RoCE) as NICs of the machine. `root` is "/sys", or
/// a recorded copy of its folders class/infiniband and class/net.
void add_port_facts(Graph& graph, const std::string& root);

/// Facts about the NIC of a network interface.
struct InterfaceFacts {
  Bandwidth rate; ///< rate; unknown for interfaces without hardware, whose speed is an invention
  int numa = -1;  ///< number of the nearest NUMA node; −1: unknown
};
/// Returns what Linux says of the NIC behind the interface `name`; `root` as for add_port_facts().
InterfaceFacts interface_facts(const std::string& name, const std::string& root);

} // namespace whorl::topology
