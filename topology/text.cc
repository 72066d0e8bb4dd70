#include "topology/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace whorl::topology {
namespace {

/// Returns what a line of the tree says of a node after its name.
std::string details(const Graph& graph, int node) {
  const Node& it = graph.at(node);
  std::string text;
  const auto add = [&](std::string_view what) {
    if (!what.empty()) text += fmt::format("{}{}", text.empty() ? " " : ", ", what);
  };
  if (it.kind == NodeKind::kGpu || it.kind == NodeKind::kNvSwitch) add(it.bus_id);
  add(it.model);
  if (it.kind == NodeKind::kNuma || it.kind == NodeKind::kPackage || it.kind == NodeKind::kCache) {
    add(it.cpus.empty() ? "" : "CPUs " + it.cpus.ranges());
  }
  if (it.kind == NodeKind::kNic) {
    if (it.net_device != it.name) add(it.net_device);
    if (it.port >= 0) add(fmt::format("port {}", it.port));
    if (it.rdma) add("RDMA");
    if (it.down) add("DOWN");
  }
  const bool device = it.kind == NodeKind::kGpu || it.kind == NodeKind::kCard ||
                      it.kind == NodeKind::kNic || it.kind == NodeKind::kBridge;
  if (it.up.known() || device) {
    add(fmt::format(
        "{} GB/s{}", to_text(it.up),
        it.kind == NodeKind::kPackage || it.kind == NodeKind::kNuma ? " to the others" : ""));
  }
  if (it.hidden_links > 0) add(fmt::format("{} links to hidden ends", it.hidden_links));
  return text;
}

/// Returns the last of the cores that follow each other from `node` on under one parent.
int last_core(const Graph& graph, int node) {
  while (static_cast<std::size_t>(node) + 1 < graph.nodes.size()) {
    const Node& next = graph.at(node + 1);
    const Node& it = graph.at(node);
    if (next.kind != NodeKind::kCore || next.parent != it.parent || next.index != it.index + 1)
      break;
    ++node;
  }
  return node;
}

/// Returns for each node whether a GPU, NIC or NVSwitch is below it, or is it.
std::vector<bool> leads_to_devices(const Graph& graph) {
  std::vector<bool> used(graph.nodes.size());
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& it = graph.nodes[i];
    if (it.kind == NodeKind::kGpu || it.kind == NodeKind::kNic || it.kind == NodeKind::kNvSwitch) {
      used[i] = true;
    }
    if (used[i] && it.parent >= 0) used[static_cast<std::size_t>(it.parent)] = true;
  }
  return used;
}

/// Returns the processors of the smallest part around a device that has any; a list that is too
/// long for a table is cut off.
std::string cpus_near(const Graph& graph, int device) {
  while (device >= 0 && graph.at(device).cpus.empty()) device = graph.at(device).parent;
  if (device < 0) return "?";
  constexpr std::size_t kMostCharacters = 60;
  std::string cpus = graph.at(device).cpus.ranges();
  if (cpus.size() > kMostCharacters) {
    cpus.resize(cpus.rfind(',', kMostCharacters) + 1);
    cpus += "...";
  }
  return cpus;
}

/// Returns a line for each node and the nodes to which it has equal links; switches come second.
std::string links_of(const Graph& graph) {
  struct Line {
    Link link;
    std::string ends;
    bool several = false;
  };
  std::vector<Line> lines;
  std::map<std::tuple<int, NodeKind, LinkKind, int, double>, std::size_t> known;
  for (Link link : graph.links) {
    if (graph.at(link.a).kind == NodeKind::kNvSwitch) std::swap(link.a, link.b);
    const auto [line, added] = known.try_emplace(
        {link.a, graph.at(link.b).kind, link.kind, link.count, link.bandwidth.gb_per_s},
        lines.size());
    if (added) {
      lines.push_back({.link = link, .ends = label(graph, link.b)});
    } else {
      lines[line->second].ends += ", " + label(graph, link.b);
      lines[line->second].several = true;
    }
  }
  std::string text;
  for (const Line& it : lines) {
    text +=
        fmt::format("{} - {}: {}{}, {} GB/s{}\n", label(graph, it.link.a), it.ends,
                    it.link.count > 0 ? fmt::format("{} × ", it.link.count) : "",
                    name_of(it.link.kind), to_text(it.link.bandwidth), it.several ? " each" : "");
  }
  return text;
}

} // namespace

std::string to_tree(const Graph& graph) {
  std::string text;
  std::vector<int> depth(graph.nodes.size());
  const std::vector<bool> used = leads_to_devices(graph);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& it = graph.nodes[i];
    const int node = static_cast<int>(i);
    if (it.parent >= 0) depth[i] = depth[static_cast<std::size_t>(it.parent)] + 1;
    if ((it.kind == NodeKind::kHostBridge || it.kind == NodeKind::kBridge) && !used[i]) continue;
    const auto indent = static_cast<std::size_t>(depth[i]) * 2;
    const int last = it.kind == NodeKind::kCore ? last_core(graph, node) : node;
    if (last > node) {
      text += fmt::format("{:{}}cores {}-{}\n", "", indent, it.index, graph.at(last).index);
      i = static_cast<std::size_t>(last);
      continue;
    }
    text += fmt::format("{:{}}{}{}\n", "", indent, label(graph, node), details(graph, node));
  }
  return text + links_of(graph);
}

std::string to_matrix(const Graph& graph) {
  std::vector<int> devices = graph.all(NodeKind::kGpu);
  for (const int nic : graph.all(NodeKind::kNic)) devices.push_back(nic);
  if (devices.empty()) return {};
  const auto short_name = [&](int node) {
    const bool gpu = graph.at(node).kind == NodeKind::kGpu;
    return fmt::format("{}{}", gpu ? "GPU" : "NIC", graph.at(node).index);
  };
  constexpr int kWidth = 7;
  std::string text = fmt::format("{:{}}", "", kWidth);
  for (const int device : devices) text += fmt::format("{:<{}}", short_name(device), kWidth);
  std::vector<std::string> cpus;
  std::size_t cpu_width = std::string_view("CPU affinity").size();
  for (const int device : devices) {
    cpus.push_back(cpus_near(graph, device));
    cpu_width = std::max(cpu_width, cpus.back().size());
  }
  text += fmt::format("{:<{}}NUMA\n", "CPU affinity", cpu_width + 2);
  std::set<PathClass> classes;
  std::size_t row = 0;
  for (const int a : devices) {
    text += fmt::format("{:<{}}", short_name(a), kWidth);
    for (const int b : devices) {
      const Path path = find_path(graph, a, b);
      classes.insert(path.path_class);
      text += fmt::format("{:<{}}", name_of(path), kWidth);
    }
    text += fmt::format("{:<{}}", cpus[row++], cpu_width + 2);
    const int numa = graph.above(a, NodeKind::kNuma);
    text +=
        numa < 0 || graph.at(numa).index < 0 ? "?\n" : fmt::format("{}\n", graph.at(numa).index);
  }
  constexpr std::array<std::string_view, 8> kMeaning = {
      "",
      "NV#, XGMI#, XEL#: that many links beside PCI (?: unknown), directly or by switches",
      "C2C: links of a package between processor and GPU",
      "PIX: at most one PCI switch",
      "PXB: several PCI switches, and no processor",
      "PHB: a PCI host bridge of a processor",
      "NODE: several host bridges of one NUMA node",
      "SYS: the link between NUMA nodes or packages"};
  for (const PathClass it : classes) {
    if (it != PathClass::kSelf)
      text += fmt::format("{}\n", kMeaning.at(static_cast<std::size_t>(it)));
  }
  for (const int nic : graph.all(NodeKind::kNic)) {
    if (!graph.at(nic).name.empty()) {
      text += fmt::format("{}: {}\n", short_name(nic), nic_name(graph.at(nic)));
    }
  }
  return text;
}

std::string to_summary(const Graph& graph) {
  std::string text;
  const auto add = [&](NodeKind kind, std::string_view one, std::string_view many) {
    const std::size_t count = graph.all(kind).size();
    if (count == 0) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, count == 1 ? one : many);
  };
  add(NodeKind::kPackage, "package", "packages");
  add(NodeKind::kNuma, "NUMA node", "NUMA nodes");
  add(NodeKind::kCore, "core", "cores");
  const std::size_t cpus = graph.nodes.front().cpus.count();
  if (cpus > 0) text += fmt::format(", {} CPUs", cpus);
  add(NodeKind::kGpu, "GPU", "GPUs");
  add(NodeKind::kNvSwitch, "NVSwitch", "NVSwitches");
  add(NodeKind::kNic, "NIC", "NICs");
  // The upstream port of a switch leads to its other ports; other bridges below a root port do not.
  std::set<int> switches;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& it = graph.nodes[i];
    if (it.role == BridgeRole::kSwitch) switches.insert(static_cast<int>(i));
    if (it.role == BridgeRole::kDownstreamPort) switches.insert(it.parent);
  }
  if (!switches.empty())
    text +=
        fmt::format(", {} PCI {}", switches.size(), switches.size() == 1 ? "switch" : "switches");
  return text;
}

std::string to_text(const Bandwidth& bandwidth) {
  if (!bandwidth.known()) return "?";
  return fmt::format("{}{:.1f}", bandwidth.origin == Origin::kTable ? "~" : "", bandwidth.gb_per_s);
}

std::string links_text(const Path& path) {
  const bool one_word = name_of(path.kind).ends_with("Link");
  const bool single = path.links == 1;
  const std::string kind = fmt::format("{}{}{}", name_of(path.kind), one_word ? "" : " link",
                                       single || path.path_class == PathClass::kSys ? "" : "s");
  if (path.path_class == PathClass::kSys) return "no " + kind;
  return fmt::format("{}{} ({} GB/s)", path.links > 0 ? fmt::format("{} ", path.links) : "", kind,
                     to_text(path.bandwidth));
}

std::string labels(const Graph& graph, const std::vector<int>& nodes) {
  std::string text;
  for (const int node : nodes)
    text += fmt::format("{}{}", text.empty() ? "" : " ", label(graph, node));
  return text;
}

} // namespace whorl::topology
