#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "topology/bus_ids.h"
#include "topology/devices.h"
#include "topology/nccl_xml.h"
#include "topology/text_file.h"

namespace whorl::topology {
namespace {

constexpr int kMaxLinks = 1000; ///< most links of a pair that count
constexpr std::uint32_t kGpuClass = 0x030200, kNicClass = 0x020000, kBridgeClass = 0x060400,
                        kNvSwitchClass = 0x068000, kProcessorClass = 0x068001;

/// Returns GB/s of `link_speed="16.0 GT/s PCIe" link_width="16"`, or "x16"; either may be empty or
/// 0.
Bandwidth pci_link(pugi::xml_node element) {
  std::string_view width = element.attribute("link_width").value();
  if (width.starts_with('x')) width.remove_prefix(1);
  return pci_bandwidth(leading_number(element.attribute("link_speed").value()),
                       leading_count(width));
}

/// Reader of one file, element by element.
class NcclReader {
 public:
  explicit NcclReader(const XmlFile& file) : file_(file) {}

  Result<Graph> read() {
    const pugi::xml_node system = file_.root();
    graph_.source = Source::kNccl;
    const int machine = graph_.add(-1, NodeKind::kMachine);
    for (const pugi::xml_node child : system.children()) {
      if (child.type() != pugi::node_element) continue;
      if (std::string_view(child.name()) == "cpu") {
        WHORL_TRY(read_cpu(child, machine));
      } else {
        WHORL_TRY(read_device(child, machine));
      }
    }
    WHORL_TRY(add_switches());
    WHORL_TRY(connect());
    finish();
    normalize(graph_);
    return std::move(graph_);
  }

 private:
  /// Link that an element names by the bus id of its other end.
  struct Named {
    pugi::xml_node element;
    int gpu = -1;
    LinkKind kind = LinkKind::kNvLink;
    std::string target;
    std::uint32_t target_class = 0;
    int count = 0;
  };

  void note(pugi::xml_node element, std::string_view what) {
    add_note(graph_, fmt::format("{}: {}", file_.place(element), what));
  }

  Status read_cpu(pugi::xml_node element, int machine) {
    hosts_.push_back(element.attribute("host_hash").value());
    if (hosts_.back() != hosts_.front()) return {};
    const int numa = graph_.add(machine, NodeKind::kNuma);
    const auto id = file_.number(element, "numaid", -1, kMaxNuma);
    if (!id.ok()) return id.status();
    const std::string_view affinity = element.attribute("affinity").value();
    if (!affinity.empty()) {
      const auto cpus = CpuSet::parse_mask(affinity);
      if (!cpus) {
        return file_.error(element,
                           fmt::format("has affinity=\"{}\", which is no mask of processors",
                                       affinity.substr(0, 40)));
      }
      graph_.at(numa).cpus = *cpus;
      graph_.at(machine).cpus |= *cpus;
    }
    graph_.at(numa).index = static_cast<int>(id->value_or(-1));
    if (!numas_.insert(graph_.at(numa).index).second) {
      return file_.error(element,
                         fmt::format("has numaid=\"{}\" like another one", graph_.at(numa).index));
    }
    Processor& processor = graph_.at(numa).processor;
    processor = {.arch = element.attribute("arch").value(),
                 .vendor = element.attribute("vendor").value(),
                 .family = leading_count(element.attribute("familyid").value()),
                 .model = leading_count(element.attribute("modelid").value())};
    graph_.at(numa).up = package_bandwidth(processor);
    return read_devices(element, numa);
  }

  Status read_devices(pugi::xml_node element, int parent) {
    for (const pugi::xml_node child : element.children()) {
      if (child.type() == pugi::node_element) WHORL_TRY(read_device(child, parent));
    }
    return {};
  }

  Status read_device(pugi::xml_node element, int parent) {
    const std::string_view name = element.name();
    if (name == "pci") return read_pci(element, parent);
    if (name == "nic") return read_nic(element, parent);
    if (name == "gpu" || name == "net" || name == "nvlink" || name == "xgmi" || name == "c2c") {
      return file_.error(element,
                         fmt::format("is not allowed inside <{}>", element.parent().name()));
    }
    note(element, fmt::format("<{}> is unknown, and left out", name));
    return {};
  }

  Status read_pci(pugi::xml_node element, int parent) {
    const std::string_view text = element.attribute("busid").value();
    const std::string bus_id = normal_bus_id(text);
    if (bus_id.empty()) {
      return file_.error(element, fmt::format("has busid=\"{}\"; a bus id is like \"0000:41:00.0\"",
                                              text.substr(0, 40)));
    }
    Node node{.parent = parent, .bus_id = bus_id, .up = pci_link(element)};
    for (const auto& [attribute, field] : {std::pair{"class", &Node::pci_class},
                                           {"vendor", &Node::vendor},
                                           {"device", &Node::device}}) {
      const auto value = file_.number(element, attribute, 0, 0xffffff);
      if (!value.ok()) return value.status();
      node.*field = static_cast<std::uint32_t>(value->value_or(0));
    }
    const std::string_view class_text = element.attribute("class").value();
    if (class_text.starts_with("0x") && class_text.size() == std::size("0x0302") - 1) {
      node.pci_class <<= 8U; // without the interface
    }
    const pugi::xml_node gpu = element.child("gpu");
    if (gpu.next_sibling("gpu")) return file_.error(gpu, "is not the only one of its device");
    const DeviceKind by_class = device_kind(node.pci_class, node.vendor, node.device);
    DeviceKind kind = by_class;
    if (gpu) kind = DeviceKind::kGpu;
    if (element.child("nic")) kind = DeviceKind::kNic;
    if (element.child("pci")) kind = DeviceKind::kBridge;
    if (kind != by_class) { // what is in a device outweighs its class
      node.pci_class = kind == DeviceKind::kGpu   ? kGpuClass
                       : kind == DeviceKind::kNic ? kNicClass
                                                  : kBridgeClass;
    }
    switch (kind) {
      case DeviceKind::kBridge:
        node.kind = NodeKind::kBridge;
        node.role = BridgeRole::kSwitch;
        break;
      case DeviceKind::kGpu:
        node.kind = NodeKind::kGpu;
        break;
      case DeviceKind::kNic:
        node.kind = NodeKind::kCard;
        break;
      case DeviceKind::kNvSwitch:
        node.kind = NodeKind::kNvSwitch;
        break;
      case DeviceKind::kOther:
        note(element,
             fmt::format("device {} is neither GPU, NIC nor bridge, and left out", bus_id));
        return {};
    }
    const int self = static_cast<int>(graph_.nodes.size());
    graph_.nodes.push_back(std::move(node));
    WHORL_TRY(bus_ids_.add(file_, element, graph_, self));
    switch (kind) {
      case DeviceKind::kGpu:
        return gpu ? read_gpu(gpu, self) : Status();
      case DeviceKind::kNic: {
        WHORL_TRY(read_devices(element, self));
        if (!element.child("nic")) add_port(graph_, self);
        return {};
      }
      default:
        return read_devices(element, self);
    }
  }

  /// Reads gcn="910", or gcn="gfx90a" of newer files: decimal digits and a hexadecimal one.
  Result<std::optional<long>> read_gcn(pugi::xml_node element) const {
    const std::string_view text = element.attribute("gcn").value();
    constexpr std::string_view kPrefix = "gfx";
    if (!text.starts_with(kPrefix)) return file_.number(element, "gcn", 0, 100'000);
    const char* const begin = text.data() + kPrefix.size();
    const char* const end = text.data() + text.size();
    long tens = 0, ones = 0;
    if (end - begin < 3 || end - begin > 5 ||
        std::from_chars(begin, end - 1, tens).ptr != end - 1 ||
        std::from_chars(end - 1, end, ones, 16).ptr != end) {
      return file_.error(element, fmt::format("has gcn=\"{}\", which is no number like gfx90a",
                                              text.substr(0, 40)));
    }
    return std::optional<long>(tens * 10 + ones);
  }

  Status read_gpu(pugi::xml_node element, int gpu) {
    const auto index = file_.number(element, "dev", -1, 1 << 20);
    if (!index.ok()) return index.status();
    const auto sm = file_.number(element, "sm", 0, 1000);
    if (!sm.ok()) return sm.status();
    const auto gcn = read_gcn(element);
    if (!gcn.ok()) return gcn.status();
    Node& node = graph_.at(gpu);
    node.index = static_cast<int>(index->value_or(-1));
    node.gpu_arch = static_cast<unsigned>(gcn->value_or(sm->value_or(0)));
    node.gdr = element.attribute("gdr").as_int() != 0;
    for (const pugi::xml_node child : element.children()) {
      if (child.type() == pugi::node_element) WHORL_TRY(read_link(child, gpu));
    }
    return {};
  }

  Status read_link(pugi::xml_node element, int gpu) {
    const std::string_view name = element.name();
    const auto count = file_.number(element, "count", 0, 1000);
    if (!count.ok()) return count.status();
    Named link{.element = element, .gpu = gpu, .count = static_cast<int>(count->value_or(1))};
    if (name == "c2c") {
      return read_c2c(element, gpu, link.count);
    }
    if (name != "nvlink" && name != "xgmi") {
      note(element, fmt::format("<{}> is unknown, and left out", name));
      return {};
    }
    if (name == "xgmi") link.kind = LinkKind::kXgmi;
    link.target = normal_bus_id(element.attribute("target").value());
    const auto target_class = file_.number(element, "tclass", 0, 0xffffff);
    if (!target_class.ok()) return target_class.status();
    link.target_class = static_cast<std::uint32_t>(target_class->value_or(0));
    if (link.count > 0) named_.push_back(std::move(link));
    return {};
  }

  /// Reads the link of a GPU to the processor of its package.
  Status read_c2c(pugi::xml_node element, int gpu, int count) {
    const auto mb_per_s = file_.number(element, "bw", 0, 10'000'000);
    if (!mb_per_s.ok()) return mb_per_s.status();
    const int numa = graph_.above(gpu, NodeKind::kNuma);
    if (numa < 0) return file_.error(element, "belongs to a GPU that is in no <cpu>");
    Link link{.a = gpu, .b = numa, .kind = LinkKind::kC2C, .count = count};
    if (count == 0) return {};
    link.bandwidth = reported_bandwidth(static_cast<double>(mb_per_s->value_or(0)) * count / 1000);
    const auto same = std::find_if(graph_.links.begin(), graph_.links.end(), [&](const Link& it) {
      return it.a == link.a && it.b == link.b;
    });
    if (same != graph_.links.end()) return file_.error(element, "is the second of its GPU");
    graph_.links.push_back(link);
    return {};
  }

  Status read_nic(pugi::xml_node element, int parent) {
    bool any = false;
    for (const pugi::xml_node child : element.children()) {
      if (child.type() != pugi::node_element) continue;
      if (std::string_view(child.name()) != "net") {
        note(child, fmt::format("<{}> is unknown, and left out", child.name()));
        continue;
      }
      WHORL_TRY(read_net(child, parent));
      any = true;
    }
    if (!any && graph_.at(parent).kind == NodeKind::kCard) add_port(graph_, parent);
    return {};
  }

  Status read_net(pugi::xml_node element, int parent) {
    const auto index = file_.number(element, "dev", -1, 1 << 20);
    if (!index.ok()) return index.status();
    const auto speed = file_.number(element, "speed", -1, 100'000'000);
    if (!speed.ok()) return speed.status();
    const auto port = file_.number(element, "port", -1, 1000);
    if (!port.ok()) return port.status();
    const bool on_card = graph_.at(parent).kind == NodeKind::kCard;
    Node& nic = graph_.at(on_card ? add_port(graph_, parent) : graph_.add(parent, NodeKind::kNic));
    nic.name = element.attribute("name").value();
    nic.index = static_cast<int>(index->value_or(-1));
    nic.port = static_cast<int>(port->value_or(-1));
    nic.guid = element.attribute("guid").value();
    nic.gdr = element.attribute("gdr").as_int() != 0;
    nic.up = network_bandwidth(static_cast<double>(speed->value_or(0)));
    // Plug-ins for sockets number their ports 0, and write the number of the interface as guid.
    if (nic.gdr || nic.port > 0 || named_as_rdma(nic.name)) nic.rdma = true;
    return {};
  }

  /// Adds the switches of links that are on no PCI bus that this machine sees.
  Status add_switches() {
    for (const Named& link : named_) {
      if (link.target_class != kNvSwitchClass || link.target.empty()) continue;
      if (bus_ids_.find(link.target) >= 0) continue;
      const int nvswitch = graph_.add(0, NodeKind::kNvSwitch);
      graph_.at(nvswitch).bus_id = link.target;
      WHORL_TRY(bus_ids_.add(file_, link.element, graph_, nvswitch));
    }
    return {};
  }

  /// Returns the node at the other end of a link; −1: it cannot be told.
  Result<int> target_of(const Named& link) const {
    if (link.target_class == kProcessorClass) return graph_.above(link.gpu, NodeKind::kNuma);
    const int found = bus_ids_.find(link.target);
    if (found < 0) return -1;
    const NodeKind kind = graph_.at(found).kind;
    if (kind == NodeKind::kGpu || kind == NodeKind::kNvSwitch) return found;
    return file_.error(link.element,
                       fmt::format("leads to {}, which is a {}", link.target, name_of(kind)));
  }

  /// Makes links of those that elements name; both ends name one, or one end.
  Status connect() {
    std::map<std::tuple<int, int, LinkKind>, std::map<int, int>> counts; // by the naming end
    for (const Named& link : named_) {
      const auto target = target_of(link);
      if (!target.ok()) return target.status();
      if (*target < 0 || *target == link.gpu) {
        int& hidden = graph_.at(link.gpu).hidden_links;
        hidden = std::min(hidden + link.count, kMaxLinks);
      }
      if (*target < 0) {
        note(link.element, fmt::format("the link leads to {}, which this machine does not show",
                                       link.target.empty() ? "no bus id" : link.target));
        continue;
      }
      if (*target == link.gpu) {
        note(link.element,
             fmt::format("the link leads from {} to itself, and is left out", link.target));
        continue;
      }
      counts[{std::min(link.gpu, *target), std::max(link.gpu, *target), link.kind}][link.gpu] +=
          link.count;
    }
    for (const auto& [ends, named] : counts) {
      const auto [a, b, kind] = ends;
      const auto [fewest, most] = std::minmax_element(
          named.begin(), named.end(), [](auto& x, auto& y) { return x.second < y.second; });
      if (fewest->second != most->second) {
        add_note(
            graph_,
            fmt::format(
                "{}: {} and {} name {} and {} links to each other; the smaller number is used",
                file_.name(), graph_.at(a).bus_id, graph_.at(b).bus_id, named.at(a), named.at(b)));
      }
      Link link{.a = a, .b = b, .kind = kind, .count = std::min(fewest->second, kMaxLinks)};
      for (const int end : {a, b}) { // the slower generation of the two, whoever names the link
        if (graph_.at(end).kind != NodeKind::kGpu) continue;
        const unsigned arch = graph_.at(end).gpu_arch;
        const Bandwidth one =
            kind == LinkKind::kXgmi ? xgmi_bandwidth(arch) : nvlink_bandwidth(arch);
        if (!one.known()) continue;
        if (!link.bandwidth.known() || one.gb_per_s * link.count < link.bandwidth.gb_per_s) {
          link.bandwidth = {.gb_per_s = one.gb_per_s * link.count, .origin = one.origin};
        }
      }
      graph_.links.push_back(link);
    }
    return {};
  }

  /// Removes the bandwidth to other NUMA nodes where there is only one.
  void finish() {
    const std::set<std::string_view> hosts(hosts_.begin(), hosts_.end());
    if (hosts.size() > 1) { // of one NVLink domain, whose descriptions NCCL joins
      add_note(graph_, fmt::format("{}: there are {} hosts, of which the first is shown",
                                   file_.name(), hosts.size()));
    }
    if (numas_.size() > 1) return;
    for (Node& node : graph_.nodes) {
      if (node.kind == NodeKind::kNuma) node.up = {};
    }
  }

  const XmlFile& file_;
  Graph graph_;
  std::vector<Named> named_;
  BusIds bus_ids_;
  std::set<int> numas_;
  std::vector<std::string_view> hosts_; ///< host_hash of the processors so far
};

} // namespace

Result<Graph> read_nccl_xml(const XmlFile& file) { return NcclReader(file).read(); }

} // namespace whorl::topology
