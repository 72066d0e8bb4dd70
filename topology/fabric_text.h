#pragma once

#include <string>
#include <string_view>

#include "topology/fabric.h"

namespace whorl::topology {

/// Returns the counts of what a network has: "64 hosts, 4 leaves with 16 hosts each, 1 switch or
/// group above".
std::string to_summary(const Fabric& fabric);

/// Returns the network as a tree, one switch on a line, with its hosts and the GB/s upwards.
std::string to_tree(const Fabric& fabric);

/// Returns the switches above a host on one line, leaf first; empty if the network lacks the host.
std::string to_chain(const Fabric& fabric, std::string_view host);

} // namespace whorl::topology
