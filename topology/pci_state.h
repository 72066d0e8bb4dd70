#pragma once

#include <map>
#include <string>

#include "topology/graph.h"

namespace whorl::topology {

/// State of one PCI device as Linux describes it. What is unknown is 0 or false.
struct PciState {
  double gt_per_s = 0;     ///< speed of a lane now, in gigatransfers per second
  double max_gt_per_s = 0; ///< most that device and slot can do
  int lanes = 0;           ///< number of lanes in use
  int max_lanes = 0;       ///< number of lanes that the device has
  bool redirects = false;  ///< whether the bridge sends all traffic up to the processor (ACS)
};
/// States by bus id.
using PciStates = std::map<std::string, PciState, std::less<>>;

/// Reads the states of the GPUs, cards and bridges of a graph of this machine. `root` is "/sys", or
/// a recorded copy of its folder bus/pci/devices. Linux shows only to root what bridges redirect.
PciStates read_pci_states(const Graph& graph, const std::string& root);

} // namespace whorl::topology
