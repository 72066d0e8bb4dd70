#pragma once

#include <string>
#include <vector>

#include "topology/graph.h"
#include "topology/pci_state.h"

namespace whorl::topology {

/// Looks for known faults of a machine: PCI links slower than those of equal devices, than the
/// device can do (by `states`, of a live machine) or than the NIC behind them; ports without a link
/// or at a lower rate than equal ones; devices at no NUMA node; GPUs with fewer links than others,
/// or with links that the source hides; GPUs without a NIC at their NUMA node; bridges that
/// redirect traffic. Returns a sentence for each: part, figures, expectation and remedy.
///
/// Devices are equal if their PCI ids and models are. What only a few machines are built for is no
/// fault: fewer NICs than NUMA nodes with GPUs, a port of Ethernet that nobody uses.
std::vector<std::string> check(const Graph& graph, const PciStates& states = {});

} // namespace whorl::topology
