#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <string>

#include "topology/hwloc_xml.h"

namespace whorl::topology {
namespace {

using Element = pugi::xml_node;

constexpr int kOsDevGpu = 1, kOsDevNetwork = 2, kOsDevOpenFabrics = 3, kOsDevCoprocessor = 5;

void add_info(Element object, const char* name, const std::string& value) {
  if (value.empty()) return;
  Element info = object.append_child("info");
  info.append_attribute("name") = name;
  info.append_attribute("value") = value.c_str();
}

std::string mbit_of(const Bandwidth& bandwidth) {
  return bandwidth.known() ? fmt::format("{}", std::lround(bandwidth.gb_per_s * 8000)) : "";
}

/// Writer of one graph, object by object.
class HwlocWriter {
 public:
  explicit HwlocWriter(const Graph& graph)
      : graph_(graph), children_(graph.nodes.size()), memories_inside_(graph.nodes.size()) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const int parent = graph.nodes[i].parent;
      if (parent >= 0) children_[static_cast<std::size_t>(parent)].push_back(static_cast<int>(i));
    }
    number_memories();
  }

  std::string write() {
    document_.append_child(pugi::node_doctype).set_value("topology SYSTEM \"hwloc2.dtd\"");
    topology_ = document_.append_child("topology");
    topology_.append_attribute("version") = "2.0";
    write_node(0, topology_);
    for (const auto& [kind, name] : {std::pair{LinkKind::kNvLink, "NVLinkBandwidth"},
                                     {LinkKind::kXgmi, "XGMIBandwidth"},
                                     {LinkKind::kXeLink, "XeLinkBandwidth"}}) {
      write_distances(kind, name);
    }
    std::ostringstream text;
    document_.save(text, "  ");
    return text.str();
  }

 private:
  /// Gives each NUMA node a number, as hwloc wants it: of those without one, a free one.
  void number_memories() {
    const std::vector<int> numas = graph_.all(NodeKind::kNuma);
    CpuSet taken;
    for (const int numa : numas) {
      if (graph_.at(numa).index >= 0) taken.add(static_cast<unsigned>(graph_.at(numa).index));
    }
    unsigned next = 0;
    for (const int numa : numas) {
      unsigned number = static_cast<unsigned>(graph_.at(numa).index);
      if (graph_.at(numa).index < 0) {
        while (taken.contains(next)) ++next;
        number = next++;
      }
      memories_[numa] = number;
      for (int it = numa; it >= 0; it = graph_.at(it).parent) {
        memories_inside_[static_cast<std::size_t>(it)].add(number);
      }
    }
  }

  static const char* type_of(NodeKind kind) {
    switch (kind) {
      case NodeKind::kMachine:
        return "Machine";
      case NodeKind::kPackage:
        return "Package";
      case NodeKind::kNuma:
        return "NUMANode";
      case NodeKind::kCache:
        return "L3Cache";
      case NodeKind::kCore:
        return "Core";
      case NodeKind::kHostBridge:
      case NodeKind::kBridge:
        return "Bridge";
      default:
        return "PCIDev";
    }
  }

  Element add_object(Element parent, const char* type) {
    Element object = parent.append_child("object");
    object.append_attribute("type") = type;
    object.append_attribute("gp_index") = ++last_gp_;
    return object;
  }

  /// Adds the sets of processors and memories, which hwloc wants of all that is no device.
  void set_places(Element object, int node) {
    const std::string cpus = graph_.at(node).cpus.mask();
    CpuSet memories = memories_inside_[static_cast<std::size_t>(node)];
    const int around = graph_.above(node, NodeKind::kNuma);
    if (around >= 0) memories.add(memories_.at(around));
    for (const char* attribute : {"cpuset", "complete_cpuset"}) {
      object.append_attribute(attribute) = cpus.c_str();
    }
    for (const char* attribute : {"nodeset", "complete_nodeset"}) {
      object.append_attribute(attribute) = memories.mask().c_str();
    }
    if (graph_.at(node).kind == NodeKind::kMachine) {
      object.append_attribute("allowed_cpuset") = cpus.c_str();
      object.append_attribute("allowed_nodeset") = memories.mask().c_str();
    }
  }

  void write_node(int node, Element parent) {
    const Node& it = graph_.at(node);
    if (it.kind == NodeKind::kNic) {
      const bool on_card = graph_.at(it.parent).kind == NodeKind::kCard; // which writes it
      if (!on_card) write_loose_port(it, parent);
      return;
    }
    if (it.kind == NodeKind::kNuma) {
      // What lies in a memory is beside it, in a group of its own.
      Element group = add_object(parent, "Group");
      set_places(group, node);
      write_memory(node, group);
      // hwloc takes no machine without processors, of which NCCL's files show the numbers only.
      if (graph_.source == Source::kNccl) write_units(node, group);
      write_children(node, group);
      return;
    }
    Element object = add_object(parent, type_of(it.kind));
    switch (it.kind) {
      case NodeKind::kHostBridge:
        object.append_attribute("bridge_type") = "0-1";
        object.append_attribute("depth") = 0;
        object.append_attribute("bridge_pci") = it.name.c_str();
        break;
      case NodeKind::kBridge:
        object.append_attribute("bridge_type") = "1-1";
        set_pci(object, it);
        break;
      case NodeKind::kCard:
        set_pci(object, it);
        write_ports(node, object);
        break;
      case NodeKind::kGpu:
        set_pci(object, it);
        write_gpu(node, object);
        break;
      case NodeKind::kNvSwitch:
        set_pci(object, it);
        object.append_attribute("subtype") = "NVSwitch";
        gp_of_[node] = last_gp_;
        break;
      default:
        if (it.index >= 0) object.append_attribute("os_index") = it.index;
        set_places(object, node);
        gp_of_[node] = last_gp_;
        if (it.kind == NodeKind::kCache) {
          object.append_attribute("depth") = 3;
          object.append_attribute("cache_type") = 0;
        }
    }
    if (it.kind == NodeKind::kMachine) add_info(object, "HostName", it.name);
    if (it.kind == NodeKind::kPackage) write_processor(it, object);
    if (it.kind == NodeKind::kCore) write_units(node, object);
    write_children(node, object);
  }

  void write_children(int node, Element object) {
    for (const int child : children_[static_cast<std::size_t>(node)]) write_node(child, object);
  }

  void write_memory(int node, Element group) {
    Element memory = add_object(group, "NUMANode");
    memory.append_attribute("os_index") = memories_.at(node);
    CpuSet itself;
    itself.add(memories_.at(node));
    for (const char* attribute : {"cpuset", "complete_cpuset"}) {
      memory.append_attribute(attribute) = graph_.at(node).cpus.mask().c_str();
    }
    for (const char* attribute : {"nodeset", "complete_nodeset"}) {
      memory.append_attribute(attribute) = itself.mask().c_str();
    }
    gp_of_[node] = last_gp_;
  }

  static void write_processor(const Node& node, Element object) {
    const auto number = [](int value) { return value < 0 ? "" : std::to_string(value); };
    add_info(object, "CPUVendor", node.processor.vendor);
    add_info(object, "CPUFamilyNumber", number(node.processor.family));
    add_info(object, "CPUModelNumber", number(node.processor.model));
    add_info(object, "CPUModel", node.model);
  }

  void write_units(int node, Element object) {
    for (const unsigned cpu : graph_.at(node).cpus.numbers()) {
      if (units_.contains(cpu)) continue;
      units_.add(cpu);
      Element unit = add_object(object, "PU");
      unit.append_attribute("os_index") = cpu;
      CpuSet itself;
      itself.add(cpu);
      for (const char* attribute : {"cpuset", "complete_cpuset"}) {
        unit.append_attribute(attribute) = itself.mask().c_str();
      }
      for (const char* attribute : {"nodeset", "complete_nodeset"}) {
        unit.append_attribute(attribute) = object.attribute("nodeset").value();
      }
    }
  }

  static void set_pci(Element object, const Node& node) {
    object.append_attribute("pci_busid") = node.bus_id.c_str();
    object.append_attribute("pci_type") =
        fmt::format("{:04x} [{:04x}:{:04x}] [0000:0000] 00", node.pci_class >> 8U, node.vendor,
                    node.device)
            .c_str();
    object.append_attribute("pci_link_speed") = fmt::format("{}", node.up.gb_per_s).c_str();
    if (node.kind != NodeKind::kBridge) return;
    // Which buses are behind a bridge is not kept: its own bus serves as well to find it.
    const std::size_t colon = node.bus_id.find(':');
    const std::string domain = node.bus_id.substr(0, colon), bus = node.bus_id.substr(colon + 1, 2);
    object.append_attribute("bridge_pci") = fmt::format("{}:[{}-{}]", domain, bus, bus).c_str();
    object.append_attribute("depth") = 1;
  }

  void write_gpu(int node, Element object) {
    const Node& it = graph_.at(node);
    constexpr std::uint32_t kNvidia = 0x10de, kIntel = 0x8086;
    const bool nvidia = it.vendor == kNvidia || (it.vendor == 0 && it.gpu_arch < kLeastGcn);
    const bool intel = it.vendor == kIntel;
    Element device = add_object(object, "OSDev");
    device.append_attribute("name") = fmt::format("{}{}",
                                                  nvidia  ? "nvml"
                                                  : intel ? "ze"
                                                          : "rsmi",
                                                  it.index)
                                          .c_str();
    device.append_attribute("subtype") = nvidia ? "NVML" : intel ? "LevelZero" : "RSMI";
    device.append_attribute("osdev_type") = intel ? kOsDevCoprocessor : kOsDevGpu;
    add_info(device, "GPUModel", it.model);
    gp_of_[node] = last_gp_;
  }

  void write_ports(int card, Element object) {
    std::map<std::string, Element> devices;
    for (const int child : children_[static_cast<std::size_t>(card)]) {
      const Node& port = graph_.at(child);
      if (port.name.empty()) continue;
      const bool only_network = port.name == port.net_device && port.port < 0;
      if (!only_network) {
        Element& device = devices[port.name];
        if (!device) {
          device = add_object(object, "OSDev");
          device.append_attribute("name") = port.name.c_str();
          device.append_attribute("osdev_type") = kOsDevOpenFabrics;
          add_info(device, "NodeGUID", port.guid);
        }
        const std::string prefix = fmt::format("Port{}", std::max(port.port, 1));
        add_info(device, (prefix + "State").c_str(), port.down ? "1" : "4");
        add_info(device, (prefix + "Mbps").c_str(), mbit_of(port.up));
      }
      if (port.net_device.empty()) continue;
      Element network = add_object(object, "OSDev");
      network.append_attribute("name") = port.net_device.c_str();
      network.append_attribute("osdev_type") = kOsDevNetwork;
      if (only_network) {
        add_info(network, "Mbps", mbit_of(port.up));
        add_info(network, "State", port.down ? "down" : "");
      }
      if (!only_network) add_info(network, "Port", std::to_string(port.port));
    }
  }

  void write_loose_port(const Node& node, Element parent) {
    Element device = add_object(parent, "OSDev");
    device.append_attribute("name") = node.name.c_str();
    device.append_attribute("osdev_type") = node.rdma ? kOsDevOpenFabrics : kOsDevNetwork;
    add_info(device, "NodeGUID", node.guid);
    add_info(device, "Mbps", mbit_of(node.up));
    add_info(device, "State", node.down ? "down" : "");
  }

  void write_distances(LinkKind kind, const char* name) {
    std::vector<int> ends;
    for (const Link& link : graph_.links) {
      if (link.kind != kind) continue;
      ends.push_back(link.a);
      ends.push_back(link.b);
    }
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    if (ends.empty()) return;
    std::vector<long> values(ends.size() * ends.size());
    const auto place = [&](int node) {
      return static_cast<std::size_t>(std::lower_bound(ends.begin(), ends.end(), node) -
                                      ends.begin());
    };
    for (const Link& link : graph_.links) {
      if (link.kind != kind) continue;
      const long value = std::lround(link.bandwidth.gb_per_s * 1000);
      values[place(link.a) * ends.size() + place(link.b)] = value;
      values[place(link.b) * ends.size() + place(link.a)] = value;
    }
    // Objects of several types, each with its type in front.
    Element matrix = topology_.append_child("distances2hetero");
    matrix.append_attribute("nbobjs") = ends.size();
    matrix.append_attribute("kind") = 25;
    matrix.append_attribute("name") = name;
    const auto add_words = [&](const char* element, const std::string& words) {
      Element list = matrix.append_child(element);
      list.append_attribute("length") = words.size();
      list.text().set(words.c_str());
    };
    std::string words;
    for (const int end : ends) {
      const NodeKind it = graph_.at(end).kind;
      words += fmt::format("{}:{} ", it == NodeKind::kGpu ? "OSDev" : type_of(it), gp_of_[end]);
    }
    add_words("indexes", words);
    words.clear();
    for (const long value : values) words += fmt::format("{} ", value);
    add_words("u64values", words);
  }

  const Graph& graph_;
  std::vector<std::vector<int>> children_;
  std::map<int, unsigned> memories_;    ///< number of each NUMA node
  std::vector<CpuSet> memories_inside_; ///< numbers of the NUMA nodes in each node
  CpuSet units_;                        ///< processing units that are written
  std::map<int, int> gp_of_;            ///< hwloc's gp_index of nodes that links may lead to
  pugi::xml_document document_;
  Element topology_;
  int last_gp_ = 0;
};

} // namespace

std::string write_hwloc_xml(const Graph& graph) { return HwlocWriter(graph).write(); }

} // namespace whorl::topology
