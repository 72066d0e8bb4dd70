#include "topology/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/svg_box.h"
#include "topology/text.h"

namespace whorl::topology {
namespace {

constexpr double kDeviceWidth = 190, kCoreWidth = 78, kTitle = 28;
constexpr double kPageWidth = 2080;       ///< width at which the largest parts begin a new row
constexpr std::size_t kMostBoxes = 16;    ///< most cores or caches that are drawn one by one
constexpr std::size_t kMostInColumn = 12; ///< most devices above each other

constexpr Paint kPackagePaint = {.fill = "#f3f6fa", .stroke = "#5b7aa0", .width = 1.5};
constexpr Paint kNumaPaint = {.fill = "#e3ecf6", .stroke = "#5b7aa0"};
constexpr Paint kCachePaint = {.fill = "#ffffff", .stroke = "#9aa9ba"};
constexpr Paint kCorePaint = {.fill = "#eef1f4", .stroke = "#9aa9ba"};
constexpr Paint kHostBridgePaint = {.fill = "#fafafa", .stroke = "#999999", .dashes = "4 3"};
constexpr Paint kSwitchPaint = {.fill = "#fff8e1", .stroke = "#b8860b"};
constexpr Paint kGpuPaint = {.fill = "#c6e6c3", .stroke = "#2e7d32"};
constexpr Paint kNicPaint = {.fill = "#d4e4f7", .stroke = "#1f5fa8"};
constexpr Paint kDownPaint = {.fill = "#fde0dc", .stroke = "#c62828", .width = 2, .dashes = "5 3"};

/// PCI switches that are not drawn, because each leads to one part only.
struct Chain {
  int switches = 0;
  Bandwidth narrowest;

  void add(const Bandwidth& up) {
    if (up.known() && (!narrowest.known() || up.gb_per_s < narrowest.gb_per_s)) narrowest = up;
  }
};

/// Contents of a part, by how they are arranged.
struct Contents {
  std::vector<Box> caches, devices, parts;
  std::vector<int> core_nodes; ///< nodes of the cores
};

/// Builder of the boxes of one machine.
class Boxes {
 public:
  explicit Boxes(const Graph& graph)
      : graph_(graph), children_(graph.nodes.size()), items_(graph.nodes.size()) {
    for (std::size_t i = 1; i < graph.nodes.size(); ++i) {
      children_[static_cast<std::size_t>(graph.nodes[i].parent)].push_back(static_cast<int>(i));
    }
    for (std::size_t i = graph.nodes.size(); i-- > 1;) {
      items_[static_cast<std::size_t>(graph.nodes[i].parent)] += items_of(static_cast<int>(i));
    }
    const std::size_t parts = children_.front().empty() ? 0 : large_parts(0);
    inner_width_ = parts >= 2 ? kPageWidth / 2 - 20 : kPageWidth - 40;
  }

  Box machine() const { return together(arrange(collect(0, {}), true), kPageWidth); }

 private:
  const std::vector<int>& below(int node) const {
    return children_[static_cast<std::size_t>(node)];
  }

  /// Returns whether a node is a port, which belongs to its switch or processor.
  bool is_port(const Node& node) const {
    return node.kind == NodeKind::kBridge && node.role != BridgeRole::kSwitch &&
           node.role != BridgeRole::kUpstreamPort;
  }

  /// Returns the number of devices and parts as which a node is drawn, once those below it have
  /// been counted.
  int items_of(int node) const {
    const int inside = items_[static_cast<std::size_t>(node)];
    switch (graph_.at(node).kind) {
      case NodeKind::kCache:
      case NodeKind::kCore:
        return inside;
      case NodeKind::kHostBridge:
      case NodeKind::kBridge:
        return is_port(graph_.at(node)) ? inside : std::min(inside, 1);
      case NodeKind::kNvSwitch:
        return 0;
      default:
        return 1;
    }
  }

  std::size_t large_parts(int node) const {
    const auto& nodes = below(node);
    return static_cast<std::size_t>(std::count_if(nodes.begin(), nodes.end(), [this](int it) {
      return graph_.at(it).kind == NodeKind::kPackage || graph_.at(it).kind == NodeKind::kNuma;
    }));
  }

  /// Returns what is in a part, without boxes that would have one other inside.
  Contents collect(int node, const Chain& chain) const {
    Contents contents;
    for (const int child : below(node)) add(child, chain, contents);
    return contents;
  }

  void add(int node, const Chain& chain, Contents& to) const {
    switch (graph_.at(node).kind) {
      case NodeKind::kPackage:
      case NodeKind::kNuma:
        to.parts.push_back(large_part(node));
        return;
      case NodeKind::kCache:
        add_cache(node, to);
        return;
      case NodeKind::kCore:
        to.core_nodes.push_back(node);
        merge(collect(node, {}), to);
        return;
      case NodeKind::kHostBridge:
      case NodeKind::kBridge:
        add_bridge(node, chain, to);
        return;
      case NodeKind::kCard:
        add_card(node, chain, to);
        return;
      case NodeKind::kGpu:
        to.devices.push_back(gpu(node, chain));
        return;
      case NodeKind::kNic:
        to.devices.push_back(nic(node, ""));
        return;
      default: // NVSwitches are drawn with the links
        return;
    }
  }

  static void merge(Contents from, Contents& to) {
    for (const auto list : {&Contents::devices, &Contents::parts}) {
      std::move((from.*list).begin(), (from.*list).end(), std::back_inserter(to.*list));
    }
  }

  Box large_part(int node) const {
    const Node& it = graph_.at(node);
    Box box{.paint = it.kind == NodeKind::kPackage ? kPackagePaint : kNumaPaint,
            .lines = {label(graph_, node)},
            .inside = {},
            .row_width = inner_width_,
            .area = {}};
    if (!it.model.empty()) box.lines.push_back(it.model);
    std::string detail = it.cpus.empty() ? "" : cpus_of(it);
    if (it.up.known()) {
      detail += fmt::format("{}{} GB/s to the others", detail.empty() ? "" : ", ", to_text(it.up));
    }
    if (!detail.empty()) box.lines.push_back(detail);
    widen(box, 320);
    box.inside = arrange(collect(node, {}), false);
    return box;
  }

  static std::string cpus_of(const Node& node) {
    return fmt::format("CPU{} {}", node.cpus.count() == 1 ? "" : "s", node.cpus.ranges());
  }

  static Box small_box(const Paint& paint, std::vector<std::string> lines) {
    Box box{.paint = paint, .lines = std::move(lines), .inside = {}, .row_width = 0, .area = {}};
    box.area.width = kCoreWidth;
    return box;
  }

  void add_cache(int node, Contents& to) const {
    Contents inside = collect(node, {});
    const std::size_t count = inside.core_nodes.size();
    Box box = small_box(kCachePaint, {label(graph_, node)});
    constexpr std::size_t kMostInCache = 4;
    const int cores_of_all = graph_.counts.at(static_cast<std::size_t>(NodeKind::kCore));
    if (count <= kMostInCache && static_cast<std::size_t>(cores_of_all) <= kMostBoxes) {
      box.inside = cores(inside.core_nodes);
      box.row_width = kPageWidth;
    } else {
      box.lines.push_back(fmt::format("{} cores", count));
      box.lines.push_back(cpus_of(graph_.at(node)));
      widen(box, 130);
    }
    to.caches.push_back(std::move(box));
    merge(std::move(inside), to);
  }

  /// Returns a box for each core, or one for all if they are many.
  std::vector<Box> cores(const std::vector<int>& nodes) const {
    std::vector<Box> boxes;
    if (nodes.size() > kMostBoxes) {
      CpuSet cpus;
      for (const int node : nodes) cpus |= graph_.at(node).cpus;
      boxes.push_back(small_box(kCorePaint, {fmt::format("{} cores", nodes.size())}));
      boxes.back().lines.push_back("CPUs " + cpus.ranges());
      widen(boxes.back(), kDeviceWidth);
      return boxes;
    }
    for (const int node : nodes) {
      boxes.push_back(small_box(kCorePaint, {label(graph_, node), cpus_of(graph_.at(node))}));
      widen(boxes.back(), 130);
    }
    return boxes;
  }

  /// Returns boxes for the contents of a part: processors above devices, then smaller parts.
  std::vector<Box> arrange(Contents contents, bool parts_first) const {
    std::vector<Box> processors = cores(contents.core_nodes), columns, all;
    if (contents.caches.size() > kMostBoxes) {
      processors.push_back(
          small_box(kCachePaint, {fmt::format("{} caches", contents.caches.size())}));
      widen(processors.back(), kDeviceWidth);
    } else {
      std::move(contents.caches.begin(), contents.caches.end(), std::back_inserter(processors));
    }
    const bool alone = contents.devices.empty() && contents.parts.empty();
    std::vector<Box> column;
    if (!processors.empty()) {
      column.push_back(
          together(std::move(processors), alone ? 2 * kDeviceWidth : kDeviceWidth + 3 * kPad));
    }
    std::stable_partition(contents.devices.begin(), contents.devices.end(), [](const Box& it) {
      return std::string_view(it.paint.fill) == kGpuPaint.fill;
    });
    for (std::size_t i = 0; i < contents.devices.size(); ++i) {
      if (i > 0 && i % kMostInColumn == 0) {
        columns.push_back(together(std::exchange(column, {}), 0));
      }
      column.push_back(std::move(contents.devices[i]));
    }
    if (!column.empty()) columns.push_back(together(std::move(column), 0));
    for (auto* const list :
         {parts_first ? &contents.parts : &columns, parts_first ? &columns : &contents.parts}) {
      std::move(list->begin(), list->end(), std::back_inserter(all));
    }
    return all;
  }

  void add_bridge(int node, Chain chain, Contents& to) const {
    const Node& it = graph_.at(node);
    const bool host = it.kind == NodeKind::kHostBridge;
    if (is_port(it)) {
      for (const int child : below(node)) add(child, chain, to);
      return;
    }
    if (items_[static_cast<std::size_t>(node)] < 2) {
      if (!host) {
        ++chain.switches;
        chain.add(it.up);
      }
      for (const int child : below(node)) add(child, chain, to);
      return;
    }
    Box box{.paint = host ? kHostBridgePaint : kSwitchPaint,
            .lines = {},
            .inside = {},
            .row_width = inner_width_,
            .area = {}};
    box.lines.push_back(host ? label(graph_, node) : "PCI switch " + it.bus_id);
    if (!host) box.lines.push_back(pci_text(it.up, chain) + " upwards");
    widen(box, kDeviceWidth + 5 * kPad);
    box.inside = arrange(collect(node, {}), false);
    to.parts.push_back(std::move(box));
  }

  static std::string pci_text(const Bandwidth& up, Chain chain) {
    chain.add(up);
    std::string via;
    if (chain.switches == 1) via = " via switch";
    if (chain.switches > 1) via = fmt::format(" via {} switches", chain.switches);
    return fmt::format("PCI {} GB/s{}", to_text(chain.narrowest), via);
  }

  static Box device(const Paint& paint, std::vector<std::string> lines) {
    Box box{.paint = paint, .lines = std::move(lines), .inside = {}, .row_width = 0, .area = {}};
    box.area.width = kDeviceWidth;
    return box;
  }

  Box gpu(int node, const Chain& chain) const {
    const Node& it = graph_.at(node);
    Box box =
        device(kGpuPaint, {label(graph_, node) + (it.bus_id.empty() ? "" : "  " + it.bus_id)});
    if (!it.model.empty()) box.lines.push_back(it.model);
    box.lines.push_back(pci_text(it.up, chain));
    if (it.hidden_links > 0) {
      box.lines.push_back(fmt::format("{} links to hidden ends", it.hidden_links));
    }
    return box;
  }

  /// Returns the box of a NIC, with what is known of the PCI link of its card.
  Box nic(int node, const std::string& pci) const {
    const Node& it = graph_.at(node);
    std::string title = label(graph_, node);
    if (!it.net_device.empty() && it.net_device != it.name) title += " " + it.net_device;
    Box box = device(it.down ? kDownPaint : kNicPaint, {title});
    box.lines.push_back(fmt::format("{}{}{}", it.down ? "DOWN, " : "", it.rdma ? "RDMA, " : "",
                                    it.up.known() ? to_text(it.up) + " GB/s" : "rate unknown"));
    if (!pci.empty()) box.lines.push_back(pci);
    return box;
  }

  void add_card(int node, const Chain& chain, Contents& to) const {
    const std::string pci = pci_text(graph_.at(node).up, chain);
    std::vector<int> ports;
    for (const int child : below(node)) {
      if (graph_.at(child).kind == NodeKind::kNic) ports.push_back(child);
    }
    if (ports.size() == 1) {
      to.devices.push_back(nic(ports.front(), pci));
      return;
    }
    Box box = device(kHostBridgePaint, {label(graph_, node), pci});
    for (const int port : ports) {
      box.inside.push_back(nic(port, ""));
      box.inside.back().area.width = kDeviceWidth - 2 * kPad;
    }
    to.devices.push_back(std::move(box));
  }

  const Graph& graph_;
  std::vector<std::vector<int>> children_;
  std::vector<int> items_; ///< number of devices and parts that are drawn in each node
  double inner_width_ = 0;
};

} // namespace

std::string to_svg(const Graph& graph) {
  Box machine = Boxes(graph).machine();
  lay_out(machine);
  Canvas canvas;
  const std::string& name = graph.nodes.front().name;
  const std::string title = (name.empty() ? "" : name + ": ") + to_summary(graph);
  double y = kPad + Canvas::kLineHeight;
  canvas.text(kPad, y, title, true);
  y = kTitle + kPad;
  draw(canvas, machine, kPad, y);
  y += machine.area.height + 2 * kPad;
  double width =
      std::max(machine.area.width, Canvas::width_of(Canvas::fit(title, kPageWidth, true), true));
  const Area links = draw_links(canvas, graph, kPad, y);
  y += links.height + (links.height > 0 ? 2 * kPad : 0);
  width = std::max(width, links.width);
  std::string legend =
      "GB/s in each direction. ~: usual for such links, not reported here. ?: unknown.";
  if (graph.links.empty() && graph.all(NodeKind::kGpu).size() > 1) {
    legend += " No links beside PCI are described.";
  }
  canvas.text(kPad, y + kPad, legend, false);
  width = std::max(width, Canvas::width_of(legend, false));
  return canvas.finish(width + 2 * kPad, y + 3 * kPad);
}

} // namespace whorl::topology
