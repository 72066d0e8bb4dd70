#include "topology/ports.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "topology/text_file.h"

namespace whorl::topology {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Adds what the files of one port of an RDMA device say: rate "100 Gb/sec (4X EDR)", state
/// "4: ACTIVE".
void read_rdma_port(const fs::path& port, Node& nic) {
  nic.rdma = true;
  const Bandwidth rate = network_bandwidth(first_number(port / "rate") * 1000);
  if (rate.known()) nic.up = rate;
  const std::string state = first_line(port / "state");
  if (!state.empty()) nic.down = !state.starts_with("4");
}

/// Adds what the files of a network interface say: speed in Mbit/s, state "up" or "down".
void read_interface(const fs::path& interface, Node& nic) {
  const Bandwidth rate = network_bandwidth(first_number(interface / "speed"));
  if (rate.known()) nic.up = rate;
  nic.down = first_line(interface / "operstate") == "down";
}

} // namespace

InterfaceFacts interface_facts(const std::string& name, const std::string& root) {
  const fs::path interface = fs::path(root) / "class/net" / name;
  std::error_code missing;
  const bool hardware = fs::exists(interface / "device", missing);
  if (name.empty() || (!hardware && !fs::exists(interface / "bonding", missing))) return {};
  return {.rate = network_bandwidth(first_number(interface / "speed")),
          .numa = static_cast<int>(first_number(interface / "device/numa_node", -1))};
}

void add_port_facts(Graph& graph, const std::string& root) {
  const fs::path rdma = fs::path(root) / "class/infiniband", net = fs::path(root) / "class/net";
  std::set<std::string> known;
  std::error_code missing;
  for (Node& nic : graph.nodes) {
    if (nic.kind != NodeKind::kNic || nic.name.empty()) continue;
    const fs::path port = rdma / nic.name / "ports" / std::to_string(std::max(nic.port, 1));
    if (fs::exists(port, missing)) {
      known.insert(nic.name);
      read_rdma_port(port, nic);
    } else if (!nic.net_device.empty() && fs::exists(net / nic.net_device, missing)) {
      read_interface(net / nic.net_device, nic);
    }
  }
  bool added = false;
  for (const std::string& device : names_in(rdma)) {
    if (known.contains(device)) continue;
    for (const std::string& port : names_in(rdma / device / "ports")) {
      Node nic{.kind = NodeKind::kNic, .parent = 0, .name = device};
      nic.port = std::atoi(port.c_str());
      nic.guid = first_line(rdma / device / "node_guid");
      read_rdma_port(rdma / device / "ports" / port, nic);
      graph.nodes.push_back(std::move(nic));
      added = true;
    }
  }
  if (added) normalize(graph);
}

} // namespace whorl::topology
