#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "topology/fabric.h"

namespace whorl::topology {

/// Reads Slurm's topology.conf: lines of switches with their hosts or switches, or of blocks.
Result<Fabric> read_slurm_conf(std::string_view text, const std::string& name);
/// Reads Slurm's topology.yaml; an error where whorl is built without yaml-cpp.
Result<Fabric> read_slurm_yaml(std::string_view text, const std::string& name);
/// Reads the output of ibnetdiscover. Above the switches that hosts are connected to come groups:
/// those that the switches next to them connect, then those further away.
Result<Fabric> read_ibnetdiscover(std::string_view text, const std::string& name);
/// Reads lines of a host, the switch that the host is connected to, and what is above that.
Result<Fabric> read_host_map(std::string_view text, const std::string& name);

} // namespace whorl::topology
