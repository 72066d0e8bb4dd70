#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string>

#include "topology/bus_ids.h"
#include "topology/devices.h"
#include "topology/hwloc_distances.h"
#include "topology/hwloc_elements.h"
#include "topology/hwloc_ports.h"
#include "topology/hwloc_xml.h"
#include "topology/text_file.h"

namespace whorl::topology {
namespace {

constexpr int kMaxNumber = 1 << 20; ///< largest number of a part or GPU that counts

/// Returns the number at the end of a name such as "nvml12", or −1.
int number_after(std::string_view name, std::string_view prefix) {
  int number = -1;
  if (!name.starts_with(prefix)) return -1;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + prefix.size(), end, number);
  return error == std::errc() && rest == end && number <= kMaxNumber ? number : -1;
}

/// Returns the NUMA nodes of an object: memory children, perhaps behind a memory-side cache.
std::vector<Element> memories_of(Element object) {
  std::vector<Element> memories;
  for (const Element child : object.children("object")) {
    if (type_of(child) == "NUMANode") memories.push_back(child);
    if (type_of(child) == "MemCache") {
      for (const Element below : memories_of(child)) memories.push_back(below);
    }
  }
  return memories;
}

/// Returns whether parts of an object have memories of their own.
bool parts_have_memories(Element object) {
  for (const Element child : object.children("object")) {
    if (type_of(child) == "NUMANode" || type_of(child) == "MemCache") continue;
    if (!memories_of(child).empty() || parts_have_memories(child)) return true;
  }
  return false;
}

/// Reader of one file, object by object.
class HwlocReader {
 public:
  explicit HwlocReader(const XmlFile& file) : file_(file) {}

  Result<Graph> read() {
    graph_.source = Source::kHwloc;
    const Element topology = file_.root();
    const std::string_view version = topology.attribute("version").value();
    if (!version.starts_with("2.") && !version.starts_with("3.")) {
      return file_.error(
          topology, fmt::format("has version=\"{}\"; versions 2 and 3 are read: convert the file "
                                "with `lstopo --if xml --of xml`",
                                version.substr(0, 40)));
    }
    ports_.set_newer(version.front() == '3');
    const Element machine = topology.child("object");
    if (type_of(machine) != "Machine") {
      return file_.error(machine ? machine : topology, "is not an object of type Machine");
    }
    WHORL_TRY(read_object(machine, -1));
    for (const Element child : topology.children()) {
      const std::string_view name = child.name();
      if (name != "distances2" && name != "distances2hetero") continue;
      WHORL_TRY(read_links(file_, child, by_gp_, graph_));
    }
    finish();
    normalize(graph_);
    return std::move(graph_);
  }

 private:
  /// Remembers which node stands for an object that may be the end of a link, for the distances.
  Status remember(Element object, int node) {
    const auto gp = file_.number(object, "gp_index", 0, (1L << 62));
    if (!gp.ok()) return gp.status();
    if (gp->has_value() && !by_gp_.emplace(**gp, node).second) {
      return file_.error(object, fmt::format("has the gp_index {} of another object", **gp));
    }
    return {};
  }

  /// Adds a node with the processors and the number of an object.
  Result<int> add_part(Element object, int parent, NodeKind kind) {
    const auto index = file_.number(object, "os_index", -1, 0xffffffff);
    if (!index.ok()) return index.status();
    const int node = graph_.add(parent, kind);
    constexpr long kUnknown = 0xffffffff;
    if (kind != NodeKind::kMachine && index->value_or(kUnknown) <= kMaxNumber) {
      graph_.at(node).index = static_cast<int>(**index);
    }
    const std::string_view mask = object.attribute("cpuset").value();
    if (!mask.empty()) {
      const auto cpus = CpuSet::parse_mask(mask);
      if (!cpus) {
        return file_.error(object, fmt::format("has cpuset=\"{}\", which is no mask of processors",
                                               mask.substr(0, 40)));
      }
      graph_.at(node).cpus = *cpus;
    }
    WHORL_TRY(remember(object, node));
    return node;
  }

  Status read_object(Element object, int parent) {
    const std::string_view type = type_of(object);
    if (type == "OSDev") {
      ports_.read_loose(object, parent);
      return {};
    }
    // Memories are read by the object that has them.
    if (type == "Misc" || type == "NUMANode" || type == "MemCache") return {};
    // Memory is in the largest part that has no other: of a package and a cache with the same
    // processors, hwloc shows it in either.
    const bool memory_inside = type == "Machine" || type == "Package";
    if (!memory_inside) {
      const auto memory = read_memories(object, parent);
      if (!memory.ok()) return memory.status();
      parent = *memory;
    }
    Result<int> node = parent;
    if (type == "Machine") {
      if (parent >= 0) return file_.error(object, "is a Machine in another object");
      node = add_part(object, parent, NodeKind::kMachine);
      if (node.ok()) {
        const std::string_view host = info_of(object, "HostName"); // version 3: of the topology
        graph_.at(*node).name = host.empty() ? info_of(file_.root(), "HostName") : host;
      }
    } else if (type == "Package") {
      node = add_part(object, parent, NodeKind::kPackage);
      if (node.ok()) read_processor(object, *node);
    } else if (type == "L3Cache" || type == "L4Cache" ||
               (type == "L2Cache" && graph_.above(parent, NodeKind::kCache) < 0)) {
      // A cache of one core is part of the core.
      if (graph_.above(parent, NodeKind::kCache) < 0 && graph_.above(parent, NodeKind::kCore) < 0 &&
          cores_below(object) > 1) {
        node = add_part(object, parent, NodeKind::kCache);
      }
    } else if (type == "Core" || (type == "PU" && graph_.above(parent, NodeKind::kCore) < 0)) {
      node = add_part(object, parent, NodeKind::kCore);
    } else if (type == "Bridge") {
      return read_bridge(object, parent);
    } else if (type == "PCIDev") {
      return read_pci(object, parent);
    } else if (type.empty()) {
      return file_.error(object, "has no type");
    }
    if (!node.ok()) return node.status();
    const auto inside = memory_inside ? read_memories(object, *node) : node;
    if (!inside.ok()) return inside.status();
    for (const Element child : object.children("object")) WHORL_TRY(read_object(child, *inside));
    return {};
  }

  /// Returns the number of cores in an object that is in no core.
  static std::size_t cores_below(Element object) {
    constexpr std::string_view kEmpty[] = {"Misc", "NUMANode", "MemCache", "PCIDev", "OSDev"};
    std::size_t cores = 0;
    for (const Element child : object.children("object")) {
      const std::string_view type = type_of(child);
      if (std::find(std::begin(kEmpty), std::end(kEmpty), type) != std::end(kEmpty)) continue;
      cores += type == "Core" || type == "PU" ? 1 : cores_below(child);
    }
    return cores;
  }

  void read_processor(Element object, int package) {
    const auto number = [&](std::string_view name) { return leading_count(info_of(object, name)); };
    Node& node = graph_.at(package);
    node.model = info_of(object, "CPUModel");
    node.model.erase(node.model.find_last_not_of(' ') + 1);
    node.processor = {.arch = node.model.starts_with("POWER") ? "ppc64le" : "",
                      .vendor = std::string(info_of(object, "CPUVendor")),
                      .family = number("CPUFamilyNumber"),
                      .model = number("CPUModelNumber")};
    node.up = package_bandwidth(node.processor);
  }

  /// Adds the memory of an object below `parent`. Returns what the rest of the object lies in: the
  /// first of several memories, or `parent` for memory of a machine whose parts have their own. No
  /// processor is near to the latter, which is that of GPUs or behind CXL.
  Result<int> read_memories(Element object, int parent) {
    int first = parent;
    const std::vector<Element> memories = memories_of(object);
    const bool remote =
        !memories.empty() && type_of(object) == "Machine" && parts_have_memories(object);
    for (const Element memory : memories) {
      const auto node = add_part(memory, parent, NodeKind::kNuma);
      if (!node.ok()) return node.status();
      const int index = graph_.at(*node).index;
      if (index < 0 || index > kMaxNuma) {
        return file_.error(memory, fmt::format("has no os_index from 0 to {}", kMaxNuma));
      }
      if (!numas_.insert(index).second) {
        return file_.error(memory, fmt::format("has the os_index {} of another one", index));
      }
      if (remote) {
        graph_.at(*node).cpus = {};
        continue;
      }
      if (first == parent || graph_.at(*node).index < graph_.at(first).index) first = *node;
    }
    return first;
  }

  Status read_bridge(Element object, int parent) {
    const bool host = std::string_view(object.attribute("bridge_type").value()).starts_with("0-");
    const int bridge = graph_.add(parent, host ? NodeKind::kHostBridge : NodeKind::kBridge);
    if (host) {
      graph_.at(bridge).name = object.attribute("bridge_pci").value();
    } else {
      WHORL_TRY(read_pci_ids(object, bridge));
      const BridgeRole above = graph_.at(parent).role;
      graph_.at(bridge).role =
          above == BridgeRole::kRootPort || above == BridgeRole::kDownstreamPort
              ? BridgeRole::kUpstreamPort
          : above == BridgeRole::kUpstreamPort ? BridgeRole::kDownstreamPort
                                               : BridgeRole::kRootPort;
      WHORL_TRY(bus_ids_.add(file_, object, graph_, bridge));
    }
    for (const Element child : object.children("object")) WHORL_TRY(read_object(child, bridge));
    return {};
  }

  /// Reads bus id, class, ids and link of a PCI object.
  Status read_pci_ids(Element object, int node) {
    const std::string_view text = object.attribute("pci_busid").value();
    const std::string bus_id = normal_bus_id(text);
    if (bus_id.empty()) {
      return file_.error(object,
                         fmt::format("has pci_busid=\"{}\"; a bus id is like \"0000:41:00.0\"",
                                     text.substr(0, 40)));
    }
    graph_.at(node).bus_id = bus_id;
    // "0302 [10de:2335] [10de:18bf] a1"
    const std::string_view type = object.attribute("pci_type").value();
    const auto hex = [&](std::size_t at) {
      std::uint32_t value = 0;
      if (at + 4 <= type.size()) std::from_chars(type.data() + at, type.data() + at + 4, value, 16);
      return value;
    };
    graph_.at(node).pci_class = hex(0) << 8U;
    graph_.at(node).vendor = hex(6);
    graph_.at(node).device = hex(11);
    graph_.at(node).up =
        reported_bandwidth(leading_number(object.attribute("pci_link_speed").value()));
    return {};
  }

  Status read_pci(Element object, int parent) {
    const int node = graph_.add(parent, NodeKind::kCard);
    WHORL_TRY(read_pci_ids(object, node));
    Node& device = graph_.at(node);
    DeviceKind kind = device_kind(device.pci_class, device.vendor, device.device);
    if (device.pci_class >> 16U == 0x03 || device.pci_class >> 16U == 0x12) {
      for (const Element child : object.children("object")) {
        if (computes(child, device.vendor)) kind = DeviceKind::kGpu;
      }
    }
    if (std::string_view(object.attribute("subtype").value()) == "NVSwitch") {
      kind = DeviceKind::kNvSwitch; // perhaps asleep, with a class and ids of 0
    }
    const bool unused = kind == DeviceKind::kNic && !ports_.has_any(object) && !device.up.known();
    if (unused) ++unused_cards_;
    if (unused || kind == DeviceKind::kOther || kind == DeviceKind::kBridge) { // disks and the like
      graph_.nodes.pop_back();
      return {};
    }
    if (kind == DeviceKind::kNic) {
      WHORL_TRY(bus_ids_.add(file_, object, graph_, node));
      ports_.read_card(object, node);
      return {};
    }
    device.kind = kind == DeviceKind::kGpu ? NodeKind::kGpu : NodeKind::kNvSwitch;
    WHORL_TRY(remember(object, node));
    WHORL_TRY(bus_ids_.add(file_, object, graph_, node));
    return kind == DeviceKind::kGpu ? read_gpu(object, node) : Status();
  }

  /// Returns whether an operating system's device shows that its PCI device computes. OpenCL
  /// devices are at times reported for another one, such as the console of a virtual machine.
  static bool computes(Element os_device, std::uint32_t vendor) {
    const std::string_view name = os_device.attribute("name").value();
    constexpr std::uint32_t kIntel = 0x8086;
    if (name.starts_with("opencl")) return vendor == kIntel;
    return name.starts_with("cuda") || name.starts_with("nvml") || name.starts_with("rsmi") ||
           name.starts_with("ze");
  }

  /// Drops the speed of a GPU's link if it is that of generation 1, to which idle links fall, and
  /// the speed that the port at the other end of the link reports.
  void drop_idle_speed(int gpu) {
    Bandwidth& up = graph_.at(gpu).up;
    if (!is_idle_speed(up)) return;
    add_note(graph_,
             fmt::format("{}: the PCI link of GPU {} reports {:.2f} GB/s, as idle links do; "
                         "its speed is left open",
                         file_.name(), graph_.at(gpu).bus_id, up.gb_per_s));
    up = {};
    Node& above = graph_.at(graph_.at(gpu).parent);
    const bool port =
        above.role == BridgeRole::kRootPort || above.role == BridgeRole::kDownstreamPort;
    if (port && is_idle_speed(above.up)) above.up = {};
  }

  Status read_gpu(Element object, int gpu) {
    drop_idle_speed(gpu);
    std::map<std::string_view, int> numbers; // by library
    for (const Element child : os_devices_of(object)) {
      const std::string_view name = child.attribute("name").value();
      WHORL_TRY(remember(child, gpu));
      for (const Element part : child.children("object")) WHORL_TRY(remember(part, gpu));
      for (const std::string_view library : {"nvml", "rsmi", "cuda", "ze"}) {
        if (const int number = number_after(name, library); number >= 0) numbers[library] = number;
      }
      if (const std::string_view model = info_of(child, "GPUModel"); !model.empty()) {
        graph_.at(gpu).model = model;
      }
    }
    for (const std::string_view library : {"cuda", "ze", "rsmi", "nvml"}) {
      if (numbers.contains(library)) graph_.at(gpu).index = numbers[library];
    }
    return {};
  }

  void finish() {
    const auto packages =
        std::count_if(graph_.nodes.begin(), graph_.nodes.end(),
                      [](const Node& it) { return it.kind == NodeKind::kPackage; });
    for (Node& node : graph_.nodes) {
      if (node.kind == NodeKind::kPackage && packages < 2) node.up = {};
    }
    if (unused_cards_ == 0) return;
    add_note(graph_, fmt::format("{}: {} network device{} with neither driver nor PCI link, like a "
                                 "virtual function that is not in use, {} left out",
                                 file_.name(), unused_cards_, unused_cards_ == 1 ? "" : "s",
                                 unused_cards_ == 1 ? "is" : "are"));
  }

  const XmlFile& file_;
  int unused_cards_ = 0; ///< number of network cards that were left out
  Graph graph_;
  HwlocPorts ports_{file_, graph_};
  std::map<long, int> by_gp_; ///< nodes by hwloc's gp_index
  BusIds bus_ids_;
  std::set<int> numas_; ///< numbers of the NUMA nodes
};

} // namespace

Result<Graph> read_hwloc_xml(const XmlFile& file) { return HwlocReader(file).read(); }

} // namespace whorl::topology
