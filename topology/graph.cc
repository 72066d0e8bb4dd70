#include "topology/graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "base/hash.h"

namespace whorl::topology {
namespace {

constexpr std::array<std::string_view, kNumNodeKinds> kKindNames = {
    "machine", "package", "NUMA node", "cache",    "core", "host bridge",
    "bridge",  "card",    "GPU",       "NVSwitch", "NIC"};

/// Returns what children of one node are ordered by, unless they are alike in all of it.
auto key_of(const Node& node) {
  return std::tie(node.kind, node.index, node.bus_id, node.port, node.name, node.cpus,
                  node.net_device, node.guid);
}

/// Appends the nodes below `node` in order, itself first.
void walk(int node, const std::vector<std::vector<int>>& children, std::vector<int>& order) {
  std::vector<int> waiting = {node};
  while (!waiting.empty()) {
    const int next = waiting.back();
    waiting.pop_back();
    order.push_back(next);
    const auto& below = children[static_cast<std::size_t>(next)];
    waiting.insert(waiting.end(), below.rbegin(), below.rend());
  }
}

/// Returns for each node a hash of the node and of what is below it, to order nodes that are alike.
std::vector<std::uint64_t> contents(const std::vector<Node>& nodes,
                                    const std::vector<std::vector<int>>& children, int root) {
  std::vector<std::uint64_t> hashes(nodes.size());
  std::vector<int> order;
  walk(root, children, order);
  for (auto node = order.rbegin(); node != order.rend(); ++node) {
    std::vector<std::uint64_t> parts;
    for (const int child : children[static_cast<std::size_t>(*node)]) {
      parts.push_back(hashes[static_cast<std::size_t>(child)]);
    }
    std::sort(parts.begin(), parts.end());
    const Node& it = nodes[static_cast<std::size_t>(*node)];
    Hash hash;
    hash.mix(static_cast<std::uint64_t>(it.kind));
    for (const std::string& text : {it.bus_id, it.name, it.model, it.net_device, it.guid,
                                    it.cpus.mask(), it.processor.arch, it.processor.vendor}) {
      hash.mix(text);
      hash.mix(0); // its end
    }
    for (const int number : {it.index, it.port, it.processor.family, it.processor.model}) {
      hash.mix(static_cast<std::uint64_t>(number));
    }
    for (const unsigned number : {it.pci_class, it.vendor, it.device}) hash.mix(number);
    for (const bool flag : {it.gdr, it.rdma, it.down}) hash.mix(flag ? 1 : 0);
    hash.mix(std::bit_cast<std::uint64_t>(it.up.gb_per_s));
    for (const std::uint64_t part : parts) hash.mix(part);
    hashes[static_cast<std::size_t>(*node)] = hash.value();
  }
  return hashes;
}

/// Gives the nodes of a kind different numbers: those that they have, where these differ, and free
/// ones in the order of bus ids.
void number(std::vector<Node>& nodes, NodeKind kind) {
  const auto at = [&](int node) -> Node& { return nodes[static_cast<std::size_t>(node)]; };
  std::vector<int> all;
  std::map<int, int> uses;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind != kind) continue;
    all.push_back(static_cast<int>(i));
    ++uses[nodes[i].index];
  }
  std::stable_sort(all.begin(), all.end(), [&](int a, int b) {
    const int parent_a = std::max(at(a).parent, 0), parent_b = std::max(at(b).parent, 0);
    return std::tie(at(a).bus_id, at(a).port, at(a).name, at(parent_a).index) <
           std::tie(at(b).bus_id, at(b).port, at(b).name, at(parent_b).index);
  });
  int next = 0;
  for (const int node : all) {
    if (at(node).index >= 0 && uses[at(node).index] == 1) continue;
    while (uses.contains(next)) ++next;
    at(node).index = next++;
  }
}

/// Replaces control characters, which a terminal would carry out.
void make_printable(std::string& text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
}

/// Puts nodes and links into the order that Graph describes.
void sort(Graph& graph) {
  const std::size_t count = graph.nodes.size();
  std::vector<std::vector<int>> children(count);
  int root = -1;
  for (std::size_t i = 0; i < count; ++i) {
    const int parent = graph.nodes[i].parent;
    if (parent < 0) {
      root = static_cast<int>(i);
    } else {
      children[static_cast<std::size_t>(parent)].push_back(static_cast<int>(i));
    }
  }
  if (root < 0) return;
  const std::vector<std::uint64_t> below = contents(graph.nodes, children, root);
  for (auto& siblings : children) {
    std::sort(siblings.begin(), siblings.end(), [&](int a, int b) {
      const auto one = key_of(graph.at(a)), other = key_of(graph.at(b));
      return one != other ? one < other
                          : below[static_cast<std::size_t>(a)] < below[static_cast<std::size_t>(b)];
    });
  }
  std::vector<int> order, place(count, -1);
  walk(root, children, order);
  std::vector<Node> nodes;
  nodes.reserve(order.size());
  for (const int old : order) {
    place[static_cast<std::size_t>(old)] = static_cast<int>(nodes.size());
    nodes.push_back(std::move(graph.at(old)));
  }
  for (Node& node : nodes) {
    if (node.parent >= 0) node.parent = place[static_cast<std::size_t>(node.parent)];
  }
  graph.nodes = std::move(nodes);
  graph.counts = {};
  for (const Node& node : graph.nodes) ++graph.counts.at(static_cast<std::size_t>(node.kind));
  for (Link& link : graph.links) {
    link.a = place[static_cast<std::size_t>(link.a)];
    link.b = place[static_cast<std::size_t>(link.b)];
    if (link.a > link.b) std::swap(link.a, link.b);
  }
  std::sort(graph.links.begin(), graph.links.end(), [](const Link& one, const Link& other) {
    return std::tie(one.a, one.b, one.kind) < std::tie(other.a, other.b, other.kind);
  });
}

} // namespace

std::string_view name_of(NodeKind kind) { return kKindNames.at(static_cast<std::size_t>(kind)); }

std::string_view name_of(Origin origin) {
  constexpr std::array<std::string_view, 3> kNames = {"unknown", "table", "reported"};
  return kNames.at(static_cast<std::size_t>(origin));
}

std::string_view name_of(LinkKind kind) {
  constexpr std::array<std::string_view, 4> kNames = {"NVLink", "xGMI", "Xe Link", "C2C"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::string_view name_of(Source source) {
  constexpr std::array<std::string_view, 3> kNames = {"flat", "hwloc", "NCCL"};
  return kNames.at(static_cast<std::size_t>(source));
}

std::vector<int> Graph::all(NodeKind kind) const {
  std::vector<int> found;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == kind) found.push_back(static_cast<int>(i));
  }
  std::stable_sort(found.begin(), found.end(),
                   [this](int a, int b) { return at(a).index < at(b).index; });
  return found;
}

int Graph::add(int parent, NodeKind kind) {
  nodes.push_back({.kind = kind, .parent = parent});
  return static_cast<int>(nodes.size()) - 1;
}

int Graph::above(int node, NodeKind kind) const {
  while (node >= 0 && at(node).kind != kind) node = at(node).parent;
  return node;
}

int Graph::common(int a, int b) const {
  // A node comes before those that it contains.
  while (a != b) (a > b ? a : b) = at(a > b ? a : b).parent;
  return a;
}

int Graph::find_bus_id(std::string_view bus_id) const {
  const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) {
    return !node.bus_id.empty() && node.bus_id == bus_id;
  });
  return found == nodes.end() ? -1 : static_cast<int>(found - nodes.begin());
}

std::string nic_name(const Node& nic) {
  return nic.port > 1 ? fmt::format("{}:{}", nic.name, nic.port) : nic.name;
}

std::string label(const Graph& graph, int node) {
  const Node& it = graph.at(node);
  switch (it.kind) {
    case NodeKind::kGpu:
      return fmt::format("GPU{}", it.index);
    case NodeKind::kNic:
      return it.name.empty() ? fmt::format("NIC{}", it.index)
                             : fmt::format("NIC{} ({})", it.index, nic_name(it));
    case NodeKind::kBridge:
      return fmt::format("{} {}", it.role == BridgeRole::kSwitch ? "switch" : "bridge", it.bus_id);
    case NodeKind::kMachine:
      return it.name.empty() ? std::string(name_of(it.kind)) : it.name;
    case NodeKind::kHostBridge:
      return fmt::format("host bridge {}", it.name);
    case NodeKind::kCard:
      return fmt::format("{} {}", name_of(it.kind), it.bus_id);
    default:
      return it.index < 0 ? std::string(name_of(it.kind))
                          : fmt::format("{} {}", name_of(it.kind), it.index);
  }
}

void normalize(Graph& graph) {
  for (Node& node : graph.nodes) {
    for (std::string* text : {&node.name, &node.model, &node.net_device, &node.guid}) {
      make_printable(*text);
    }
  }
  // Of parts that are alike but for their place, the place decides about the numbers.
  sort(graph);
  for (const NodeKind kind : {NodeKind::kGpu, NodeKind::kNic, NodeKind::kNvSwitch}) {
    number(graph.nodes, kind);
  }
  sort(graph);
}

std::string normal_bus_id(std::string_view text) {
  // [domain:]bus:device.function
  std::string id;
  for (const char c : text) {
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0 && c != ':' && c != '.') return {};
    id += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  const auto colons = std::count(id.begin(), id.end(), ':');
  if (colons == 1) id.insert(0, "0000:");
  const std::size_t first = id.find(':'), second = id.find(':', first + 1), dot = id.find('.');
  if (colons < 1 || colons > 2 || std::count(id.begin(), id.end(), '.') != 1 || dot < second ||
      first == 0 || second == first + 1 || dot == second + 1 || dot + 1 == id.size() ||
      id.size() > 20) {
    return {};
  }
  // NVML writes domains with eight digits.
  while (id.find(':') > 4 && id.front() == '0') id.erase(0, 1);
  while (id.find(':') < 4) id.insert(0, "0");
  return id;
}

bool is_idle_speed(const Bandwidth& bandwidth) {
  constexpr std::array<int, 5> kLanes = {1, 2, 4, 8, 16};
  return bandwidth.known() && std::any_of(kLanes.begin(), kLanes.end(), [&](int lanes) {
           const double idle = pci_bandwidth(2.5, lanes).gb_per_s;
           return std::abs(bandwidth.gb_per_s - idle) <= 0.005 * idle;
         });
}

Bandwidth reported_bandwidth(double gb_per_s) {
  constexpr double kMost = 1e6; // a thousand times what the fastest links have; excludes nan, too
  if (!(gb_per_s > 0 && gb_per_s <= kMost)) return {};
  return {.gb_per_s = gb_per_s, .origin = Origin::kReported};
}

void add_note(Graph& graph, std::string note) {
  constexpr std::size_t kMostNotes = 100;
  if (graph.notes.size() > kMostNotes) return;
  graph.notes.push_back(graph.notes.size() < kMostNotes ? std::move(note)
                                                        : "there is more that is odd");
}

Bandwidth pci_bandwidth(double gt_per_s, int lanes) {
  constexpr int kWidths[] = {1, 2, 4, 8, 12, 16, 32};
  if (std::find(std::begin(kWidths), std::end(kWidths), lanes) == std::end(kWidths)) return {};
  // Bits that carry data, of those on a lane: 8b/10b, 128b/130b, and the 256 bytes of a flit.
  double used = 0;
  if (gt_per_s == 2.5 || gt_per_s == 5) {
    used = 8.0 / 10;
  } else if (gt_per_s == 8 || gt_per_s == 16 || gt_per_s == 32) {
    used = 128.0 / 130;
  } else if (gt_per_s == 64 || gt_per_s == 128) {
    used = 242.0 / 256;
  } else {
    return {};
  }
  return {.gb_per_s = gt_per_s * used / 8 * lanes, .origin = Origin::kReported};
}

} // namespace whorl::topology
