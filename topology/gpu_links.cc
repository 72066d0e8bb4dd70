#include "topology/gpu_links.h"

#include <algorithm>
#include <map>

namespace whorl::topology {
namespace {

/// Returns GB/s in one direction of a link of that version of NVML's list.
Bandwidth bandwidth_of(unsigned version) {
  if (version == 0) return {};
  return {.gb_per_s = version == 1 ? 20.0 : version < 7 ? 25.0 : 50.0, .origin = Origin::kReported};
}

/// Returns the node with a bus id; adds one to the machine if there is none.
int find_or_add(Graph& graph, const std::string& text, NodeKind kind) {
  const std::string bus_id = normal_bus_id(text);
  const int found = graph.find_bus_id(bus_id);
  if (found >= 0) {
    graph.at(found).kind = kind;
    return found;
  }
  constexpr std::uint32_t kNvidia = 0x10de;
  graph.nodes.push_back({.kind = kind, .parent = 0, .bus_id = bus_id, .vendor = kNvidia});
  return static_cast<int>(graph.nodes.size()) - 1;
}

} // namespace

void add_gpu_links(Graph& graph, const gpu::DeviceLinks& devices) {
  std::vector<int> gpus;
  for (const std::string& bus_id : devices.bus_ids) {
    gpus.push_back(find_or_add(graph, bus_id, NodeKind::kGpu));
    graph.at(gpus.back()).index = static_cast<int>(gpus.size()) - 1;
  }
  const bool has_links = std::any_of(graph.links.begin(), graph.links.end(), [](const Link& link) {
    return link.kind == LinkKind::kNvLink;
  });
  // Both GPUs of a link report it, a switch does not.
  std::map<std::pair<int, int>, std::map<int, Link>> links; // by the reporting end
  for (std::size_t i = 0; i < gpus.size() && !has_links; ++i) {
    for (const gpu::NvLink& link : devices.links[i]) {
      const std::string peer_id = normal_bus_id(link.peer_bus_id);
      if (peer_id.empty() || peer_id == normal_bus_id(devices.bus_ids[i])) {
        ++graph.at(gpus[i]).hidden_links;
        continue;
      }
      if (link.end == gpu::NvLink::End::kOther) continue;
      const bool to_gpu = link.end == gpu::NvLink::End::kGpu;
      const int peer =
          find_or_add(graph, link.peer_bus_id, to_gpu ? NodeKind::kGpu : NodeKind::kNvSwitch);
      Link& all = links[std::minmax(gpus[i], peer)][gpus[i]];
      const Bandwidth bandwidth = bandwidth_of(link.version);
      ++all.count;
      all.bandwidth.gb_per_s += bandwidth.gb_per_s;
      all.bandwidth.origin = bandwidth.origin;
    }
  }
  for (const auto& [ends, reports] : links) {
    const auto fewest = std::min_element(reports.begin(), reports.end(), [](auto& a, auto& b) {
      return a.second.count < b.second.count;
    });
    Link link = fewest->second;
    link.a = ends.first;
    link.b = ends.second;
    graph.links.push_back(link);
  }
  normalize(graph);
}

} // namespace whorl::topology
