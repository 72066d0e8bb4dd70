#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "topology/graph.h"

namespace whorl::topology {

/// Format of a file that lists the switches between hosts.
enum class FabricFormat : std::uint8_t {
  kSlurmConf,     ///< Slurm's topology.conf
  kSlurmYaml,     ///< Slurm's topology.yaml
  kIbnetdiscover, ///< output of ibnetdiscover
  kMap,           ///< lines of a host and the switches above it
};
std::string_view name_of(FabricFormat format);

/// Switch, block of hosts, or group of switches that act as one.
struct FabricSwitch {
  std::string name;
  int parent = -1; ///< index of the switch above; −1: none, a root
  Bandwidth up;    ///< bandwidth of all links to the rest of the network together

  friend bool operator==(const FabricSwitch&, const FabricSwitch&) = default;
};

struct FabricHost {
  std::string name;
  int leaf = -1; ///< index of the switch that the host is connected to
  Bandwidth up;  ///< bandwidth of all ports of the host together

  friend bool operator==(const FabricHost&, const FabricHost&) = default;
};

/// Switches between hosts: trees with one chain from each host to a root, where every host and
/// switch has one parent. Switches are in the order of a walk that visits a switch before those
/// below it, and otherwise by name; hosts are ordered by name. Neither depends on the order of the
/// lines of the file.
struct Fabric {
  FabricFormat format = FabricFormat::kMap;
  std::vector<FabricSwitch> switches;
  std::vector<FabricHost> hosts;
  /// Sentences that say what was odd in the file and how it was understood.
  std::vector<std::string> notes;

  /// Returns the index of a host, or −1. A name that the file lacks is looked for without its
  /// domain; a name without a domain means a host of the file with one, if there is one such host.
  int find(std::string_view host) const;
  /// Returns the indices of the switches above a host, leaf first; empty: the file lacks the host.
  std::vector<int> above(std::string_view host) const;

  const FabricSwitch& at(int index) const { return switches[static_cast<std::size_t>(index)]; }

  friend bool operator==(const Fabric&, const Fabric&) = default;
};

/// Reads a file, whose format is recognised by its contents. The error names the file and the line.
Result<Fabric> read_fabric_file(const std::string& path);
/// Reads the text of a file; `name` stands for the file in sentences.
Result<Fabric> read_fabric(std::string_view text, const std::string& name);

} // namespace whorl::topology
