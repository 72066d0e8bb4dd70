#include <fmt/core.h>

#include <cmath>
#include <sstream>
#include <string>

#include "topology/nccl_xml.h"

namespace whorl::topology {
namespace {

/// Sets the speed and width of the PCI link that has a bandwidth, or as good as.
void set_link(pugi::xml_node element, const Bandwidth& bandwidth) {
  for (const int width : {16, 8, 4, 2, 1, 32, 12}) {
    for (const double speed : {2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0}) {
      const Bandwidth link = pci_bandwidth(speed, width);
      if (!bandwidth.known() ||
          std::abs(link.gb_per_s - bandwidth.gb_per_s) > 0.01 * bandwidth.gb_per_s) {
        continue;
      }
      element.append_attribute("link_speed") = fmt::format("{} GT/s", speed).c_str();
      element.append_attribute("link_width") = width;
      return;
    }
  }
}

void set_text(pugi::xml_node element, const char* attribute, const std::string& text) {
  if (!text.empty()) element.append_attribute(attribute) = text.c_str();
}

void set_hex(pugi::xml_node element, const char* attribute, std::uint32_t value, int digits) {
  if (value != 0) {
    element.append_attribute(attribute) = fmt::format("0x{:0{}x}", value, digits).c_str();
  }
}

/// Writer of one graph, part by part.
class NcclWriter {
 public:
  explicit NcclWriter(const Graph& graph) : graph_(graph), elements_(graph.nodes.size()) {}

  std::string write() {
    pugi::xml_node system = document_.append_child("system");
    system.append_attribute("version") = 1;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      pugi::xml_node parent =
          node.parent < 0 ? system : elements_[static_cast<std::size_t>(node.parent)];
      elements_[i] = write_node(static_cast<int>(i), parent);
    }
    std::ostringstream text;
    document_.save(text, "  ", pugi::format_default | pugi::format_no_declaration);
    return text.str();
  }

 private:
  /// Writes one node; returns the element that contains the node's children.
  pugi::xml_node write_node(int index, pugi::xml_node parent) {
    const Node& node = graph_.at(index);
    switch (node.kind) {
      case NodeKind::kNuma:
        return write_cpu(node, parent);
      case NodeKind::kBridge:
        // Ports of a switch belong to the switch, and a root port to the processor.
        return node.role == BridgeRole::kSwitch || node.role == BridgeRole::kUpstreamPort
                   ? write_pci(node, parent)
                   : parent;
      case NodeKind::kCard:
        return write_pci(node, parent);
      case NodeKind::kNvSwitch:
        // A switch on no bus exists by the links that lead to it.
        if (node.parent != 0) write_pci(node, parent);
        return parent;
      case NodeKind::kGpu:
        write_gpu(index, write_pci(node, parent));
        return parent;
      case NodeKind::kNic:
        write_net(node, parent);
        return parent;
      default:
        return parent;
    }
  }

  static pugi::xml_node write_cpu(const Node& node, pugi::xml_node parent) {
    pugi::xml_node cpu = parent.append_child("cpu");
    cpu.append_attribute("numaid") = node.index;
    std::string mask;
    for (const char c : node.cpus.mask()) {
      if (c == 'x') mask.pop_back(); // "0x"
      if (c != 'x') mask += c;
    }
    set_text(cpu, "affinity", mask);
    set_text(cpu, "arch", node.processor.arch);
    set_text(cpu, "vendor", node.processor.vendor);
    if (node.processor.family >= 0) cpu.append_attribute("familyid") = node.processor.family;
    if (node.processor.model >= 0) cpu.append_attribute("modelid") = node.processor.model;
    return cpu;
  }

  static pugi::xml_node write_pci(const Node& node, pugi::xml_node parent) {
    pugi::xml_node pci = parent.append_child("pci");
    set_text(pci, "busid", node.bus_id);
    set_hex(pci, "class", node.pci_class, 6);
    set_hex(pci, "vendor", node.vendor, 4);
    set_hex(pci, "device", node.device, 4);
    set_link(pci, node.up);
    return pci;
  }

  void write_gpu(int index, pugi::xml_node pci) const {
    const Node& node = graph_.at(index);
    pugi::xml_node gpu = pci.append_child("gpu");
    gpu.append_attribute("dev") = node.index;
    if (node.gpu_arch != 0) {
      gpu.append_attribute(node.gpu_arch < kLeastGcn ? "sm" : "gcn") = node.gpu_arch;
    }
    gpu.append_attribute("gdr") = node.gdr ? 1 : 0;
    for (const Link& link : graph_.links) {
      if (link.a == index || link.b == index) {
        write_link(link, graph_.at(link.a == index ? link.b : link.a), gpu);
      }
    }
    if (node.hidden_links > 0) { // as virtual machines show these: they lead back
      const LinkKind kind = node.gpu_arch < kLeastGcn ? LinkKind::kNvLink : LinkKind::kXgmi;
      write_link({.kind = kind, .count = node.hidden_links}, node, gpu);
    }
  }

  static void write_link(const Link& link, const Node& other, pugi::xml_node gpu) {
    const int count = link.count > 0 ? link.count : 1;
    if (link.kind == LinkKind::kC2C) {
      pugi::xml_node element = gpu.append_child("c2c");
      element.append_attribute("count") = count;
      if (link.bandwidth.known()) {
        element.append_attribute("bw") = std::lround(link.bandwidth.gb_per_s * 1000 / count);
      }
      return;
    }
    pugi::xml_node element = gpu.append_child(link.kind == LinkKind::kXgmi ? "xgmi" : "nvlink");
    set_text(element, "target", other.bus_id);
    element.append_attribute("count") = count;
    element.append_attribute("tclass") = other.kind == NodeKind::kNvSwitch ? "0x068000"
                                         : other.kind == NodeKind::kGpu    ? "0x030200"
                                                                           : "0x068001";
  }

  static void write_net(const Node& node, pugi::xml_node parent) {
    pugi::xml_node nic = parent.child("nic");
    if (!nic) nic = parent.append_child("nic");
    pugi::xml_node net = nic.append_child("net");
    set_text(net, "name", node.name);
    net.append_attribute("dev") = node.index;
    if (node.up.known()) net.append_attribute("speed") = std::lround(node.up.gb_per_s * 8000);
    if (node.port >= 0) net.append_attribute("port") = node.port;
    set_text(net, "guid", node.guid);
    net.append_attribute("gdr") = node.gdr ? 1 : 0;
  }

  const Graph& graph_;
  pugi::xml_document document_;
  std::vector<pugi::xml_node> elements_; ///< element that contains the children of each node
};

} // namespace

std::string write_nccl_xml(const Graph& graph) { return NcclWriter(graph).write(); }

} // namespace whorl::topology
