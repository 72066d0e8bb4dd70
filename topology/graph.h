#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/cpu_set.h"

namespace whorl::topology {

enum class NodeKind : std::uint8_t {
  kMachine,
  kPackage, ///< processor in a socket
  kNuma,    ///< memory, and what is near it
  kCache,   ///< last-level cache, and the cores that share it
  kCore,
  kHostBridge, ///< end of a PCI hierarchy in the processor
  kBridge,     ///< PCI bridge, port of a switch, or whole switch
  kCard,       ///< PCI device that carries network ports
  kGpu,
  kNvSwitch,
  kNic, ///< port to a network
};
inline constexpr int kNumNodeKinds = 11;
/// Returns the kind in words, for instance "NUMA node".
std::string_view name_of(NodeKind kind);

/// Role of a PCI bridge. A switch is one upstream port and several downstream ports, or, in files
/// that do not show ports, one bridge.
enum class BridgeRole : std::uint8_t { kNone, kRootPort, kUpstreamPort, kDownstreamPort, kSwitch };

/// Origin of a figure.
enum class Origin : std::uint8_t {
  kUnknown,  ///< absent: there is no figure, and the value is 0
  kTable,    ///< figure that is usual for links of this kind
  kReported, ///< statement of the driver, the firmware or a file
};
std::string_view name_of(Origin origin);

/// Bandwidth of a link in one direction.
struct Bandwidth {
  double gb_per_s = 0; ///< 10^9 bytes per second
  Origin origin = Origin::kUnknown;

  bool known() const noexcept { return origin != Origin::kUnknown; }
  friend bool operator==(const Bandwidth&, const Bandwidth&) = default;
};

/// Make of a processor, as its CPUID or a file says.
struct Processor {
  std::string arch, vendor;
  int family = -1, model = -1;

  friend bool operator==(const Processor&, const Processor&) = default;
};

/// Least number of an AMD GPU in Node::gpu_arch; NVIDIA's are smaller.
inline constexpr unsigned kLeastGcn = 600;

/// Largest number of a NUMA node, as that of Linux.
inline constexpr int kMaxNuma = 1023;

/// Part of a machine, or of the network between machines. What does not apply is empty or −1.
struct Node {
  NodeKind kind = NodeKind::kMachine;
  int parent = -1;    ///< index of the node that contains this one; −1: none, the root
  int index = -1;     ///< number within its kind: GPU 3, NUMA node 1, core 12
  std::string name;   ///< name of a machine, NIC or host bridge: "mlx5_0"
  std::string bus_id; ///< domain:bus:device.function, lower case
  CpuSet cpus;        ///< processing units of a machine, package, NUMA node, cache or core
  Bandwidth up;       ///< bandwidth of the link to the parent
  std::string model;  ///< model of a GPU or processor

  Processor processor;                  ///< make of a package's or NUMA node's processor
  std::uint32_t pci_class = 0;          ///< class, subclass and interface; 0: unknown
  std::uint32_t vendor = 0, device = 0; ///< PCI ids; 0: unknown
  BridgeRole role = BridgeRole::kNone;

  unsigned gpu_arch = 0;  ///< NVIDIA's compute capability × 10, or AMD's gcn number; 0: unknown
  int hidden_links = 0;   ///< number of a GPU's links beside PCI whose other end is not shown
  bool gdr = false;       ///< whether the NIC, or the GPU for NICs, is known to do GPUDirect RDMA
  bool rdma = false;      ///< whether the NIC does RDMA (InfiniBand, RoCE, EFA, Omni-Path)
  bool down = false;      ///< whether the NIC's port is known to have no link
  int port = -1;          ///< number of the port on its card
  std::string net_device; ///< name of the NIC as a network interface: "ib0"
  std::string guid;       ///< identifier of the NIC's card

  friend bool operator==(const Node&, const Node&) = default;
};

enum class LinkKind : std::uint8_t { kNvLink, kXgmi, kXeLink, kC2C };
std::string_view name_of(LinkKind kind);

/// Links between two nodes beside the tree, all of one kind, as one.
struct Link {
  int a = -1, b = -1; ///< indices of nodes, a < b
  LinkKind kind = LinkKind::kNvLink;
  int count = 0;       ///< number of links; 0: unknown
  Bandwidth bandwidth; ///< bandwidth of all of them together

  friend bool operator==(const Link&, const Link&) = default;
};

/// Format that a graph was read from; decides how much of the PCI hierarchy it shows.
enum class Source : std::uint8_t {
  kFlat,  ///< nothing is known beyond the number of processing units
  kHwloc, ///< hwloc, live or by its XML: every bridge is a node
  kNccl,  ///< NCCL's or RCCL's XML: a switch is one node, and host bridges are not shown
};
std::string_view name_of(Source source);

/// One machine: a tree of its parts, and links beside the tree. Nodes are in the order of a walk
/// that visits a node before its children; children are ordered by kind, index and bus id, whatever
/// order the source had. Links are ordered by their nodes.
struct Graph {
  Source source = Source::kFlat;
  std::vector<Node> nodes;
  std::vector<Link> links;
  std::array<int, kNumNodeKinds> counts{}; ///< numbers of nodes of each kind, by normalize()
  /// Sentences that say what was odd in the source and how it was understood.
  std::vector<std::string> notes;

  /// Returns indices of all nodes of a kind, in the order of their `index`.
  std::vector<int> all(NodeKind kind) const;
  const Node& at(int node) const { return nodes[static_cast<std::size_t>(node)]; }
  Node& at(int node) { return nodes[static_cast<std::size_t>(node)]; }
  /// Adds a node at the end. Returns its index.
  int add(int parent, NodeKind kind);
  /// Returns the nearest node of `kind` that contains `node` or is it; −1: there is none.
  int above(int node, NodeKind kind) const;
  /// Returns the lowest node that contains both.
  int common(int a, int b) const;
  /// Returns the node with a bus id, or −1.
  int find_bus_id(std::string_view bus_id) const;

  friend bool operator==(const Graph&, const Graph&) = default;
};

/// Returns the name of a NIC with its port, if that is not the first: "mlx5_0", "mlx5_0:2".
std::string nic_name(const Node& nic);
/// Returns what people call a node: "GPU3", "NIC1 (mlx5_0)", "NUMA node 1", "switch 0000:41:00.0".
std::string label(const Graph& graph, int node);

/// Puts nodes and links into the order that Graph describes, numbers GPUs, NICs and what else has
/// no number of its own, and makes names printable. Readers of sources call it last.
void normalize(Graph& graph);

/// Returns the bus id in lower case with a domain of four digits at least ("1A:00.0" gives
/// "0000:1a:00.0"); empty if the text is not one.
std::string normal_bus_id(std::string_view text);

/// Returns GB/s in one direction of a PCI link: by gigatransfers per second of a lane and lanes.
/// Returns an unknown bandwidth for rates and widths that PCI does not have.
Bandwidth pci_bandwidth(double gt_per_s, int lanes);
/// Whether a PCI link has the speed of generation 1, to which links of idle GPUs fall.
bool is_idle_speed(const Bandwidth& bandwidth);
/// Returns a bandwidth that a source reports; an unknown one for what is no positive number that a
/// link could have.
Bandwidth reported_bandwidth(double gb_per_s);
/// Returns GB/s of a network port by its rate.
inline Bandwidth network_bandwidth(double mbit_per_s) {
  return reported_bandwidth(mbit_per_s / 8000);
}

/// Adds a note; of very many only the first ones are kept.
void add_note(Graph& graph, std::string note);

} // namespace whorl::topology
