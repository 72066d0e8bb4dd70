#include "topology/hwloc_ports.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "topology/devices.h"
#include "topology/text_file.h"

namespace whorl::topology {
namespace {

Bandwidth rate_of(Element os_device, std::string_view info) {
  return network_bandwidth(leading_count(info_of(os_device, info)));
}

} // namespace

bool HwlocPorts::has_any(Element object) const {
  const std::vector<Element> devices = os_devices_of(object);
  return std::any_of(devices.begin(), devices.end(), [this](Element device) {
    return is_openfabrics(device) || is_network(device);
  });
}

bool HwlocPorts::is_openfabrics(Element os_device) const {
  const std::string_view name = os_device.attribute("name").value();
  if (name.empty()) return false;
  return has_type(os_device, 3, 1U << 5U) ||
         name.starts_with("cxi"); // Slingshot's, beside its network device
}

bool HwlocPorts::is_network(Element os_device) const {
  return !std::string_view(os_device.attribute("name").value()).empty() &&
         has_type(os_device, 2, 1U << 4U) && !is_openfabrics(os_device);
}

/// Returns whether an operating system's device has a type: a number in version 2, one bit of
/// perhaps several in version 3.
bool HwlocPorts::has_type(Element os_device, unsigned number, unsigned bit) const {
  const unsigned type = os_device.attribute("osdev_type").as_uint();
  return newer_ ? (type & bit) != 0 : type == number;
}

void HwlocPorts::read_card(Element object, int card) {
  std::map<int, int> ports; // number → node
  std::set<std::string_view> names;
  for (const Element child : os_devices_of(object)) {
    if (!is_openfabrics(child)) continue;
    const std::string_view name = child.attribute("name").value();
    if (!names.insert(name).second) {
      add_note(graph_, fmt::format("{}: the RDMA device {} appears again, and is left out",
                                   file_.place(child), name));
      continue;
    }
    constexpr int kMaxPorts = 8;
    for (int port = 1; port <= kMaxPorts; ++port) {
      const std::string_view state = info_of(child, fmt::format("Port{}State", port));
      if (state.empty() && port > 1) break;
      const int nic = add_port(graph_, card);
      Node& node = graph_.at(nic);
      node.name = name;
      node.guid = info_of(child, "NodeGUID");
      node.rdma = true;
      node.port = port;
      constexpr std::string_view kActive = "4";
      node.down = !state.empty() && state != kActive;
      node.up = rate_of(child, fmt::format("Port{}Mbps", port));
      ports.emplace(port, nic);
    }
  }
  for (const Element child : os_devices_of(object)) {
    if (!is_network(child)) continue;
    const std::string_view name = child.attribute("name").value();
    const auto is_free = [this](const auto& it) { return graph_.at(it.second).net_device.empty(); };
    auto found = ports.find(leading_count(info_of(child, "Port")));
    if (found == ports.end() || !is_free(*found)) {
      found = std::find_if(ports.begin(), ports.end(), is_free);
    }
    if (found != ports.end()) {
      graph_.at(found->second).net_device = name;
      continue;
    }
    Node& node = graph_.at(add_port(graph_, card));
    node.name = node.net_device = name;
    node.down = info_of(child, "State") == "down";
    node.up = rate_of(child, "Mbps");
  }
  if (graph_.nodes.back().kind == NodeKind::kCard) add_port(graph_, card);
}

void HwlocPorts::read_loose(Element os_device, int parent) {
  const bool rdma = is_openfabrics(os_device);
  if (!rdma && !is_network(os_device)) return;
  Node nic{.kind = NodeKind::kNic, .parent = parent};
  nic.name = os_device.attribute("name").value();
  if (!rdma) nic.net_device = nic.name;
  nic.rdma = rdma;
  nic.down = info_of(os_device, "State") == "down";
  nic.guid = info_of(os_device, "NodeGUID");
  nic.up = rate_of(os_device, "Mbps");
  graph_.nodes.push_back(std::move(nic));
}

} // namespace whorl::topology
