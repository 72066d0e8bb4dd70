#include "topology/fabric_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "topology/hostlist.h"
#include "topology/text.h"

namespace whorl::topology {
namespace {

std::string count_of(std::size_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

/// Returns the names of the hosts that are connected to each switch.
std::vector<std::vector<std::string>> hosts_of(const Fabric& fabric) {
  std::vector<std::vector<std::string>> hosts(fabric.switches.size());
  for (const FabricHost& it : fabric.hosts) {
    hosts[static_cast<std::size_t>(it.leaf)].push_back(it.name);
  }
  return hosts;
}

std::string bandwidth_of(const Bandwidth& up) {
  return up.known() ? fmt::format(", {} GB/s up", to_text(up)) : "";
}

} // namespace

std::string to_summary(const Fabric& fabric) {
  std::size_t leaves = 0, least = fabric.hosts.size(), most = 0, roots = 0;
  for (const auto& hosts : hosts_of(fabric)) {
    if (hosts.empty()) continue;
    ++leaves;
    least = std::min(least, hosts.size());
    most = std::max(most, hosts.size());
  }
  for (const FabricSwitch& it : fabric.switches) roots += it.parent < 0 ? 1 : 0;
  const std::size_t others = fabric.switches.size() - leaves;
  const std::string each =
      least == most ? count_of(most, "host", "hosts") : fmt::format("{} to {} hosts", least, most);
  return fmt::format("{}, {} with {}{}, {}{}", count_of(fabric.hosts.size(), "host", "hosts"),
                     count_of(leaves, "leaf", "leaves"), each,
                     least == most && leaves > 1 ? " each" : "",
                     count_of(others, "other switch or group", "other switches or groups"),
                     roots > 1 ? fmt::format(", {} roots", roots) : "");
}

std::string to_tree(const Fabric& fabric) {
  const auto hosts = hosts_of(fabric);
  std::string text;
  std::vector<std::size_t> depth(fabric.switches.size());
  for (std::size_t i = 0; i < fabric.switches.size(); ++i) {
    const FabricSwitch& it = fabric.switches[i];
    if (it.parent >= 0) depth[i] = depth[static_cast<std::size_t>(it.parent)] + 1;
    text += fmt::format("{:{}}{}", "", depth[i] * 2, it.name);
    if (!hosts[i].empty()) {
      text += fmt::format(": {}, {}", count_of(hosts[i].size(), "host", "hosts"),
                          to_hostlist(hosts[i]));
    }
    text += bandwidth_of(it.up) + "\n";
  }
  return text;
}

std::string to_chain(const Fabric& fabric, std::string_view host) {
  const int index = fabric.find(host);
  if (index < 0) return {};
  const FabricHost& it = fabric.hosts[static_cast<std::size_t>(index)];
  std::string text = fmt::format("{}{}: ", it.name, bandwidth_of(it.up));
  const std::vector<int> above = fabric.above(host);
  for (std::size_t i = 0; i < above.size(); ++i) {
    text += fmt::format("{}{}", i > 0 ? ", " : "", fabric.at(above[i]).name);
  }
  return text + "\n";
}

} // namespace whorl::topology
