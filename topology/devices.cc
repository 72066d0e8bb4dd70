#include "topology/devices.h"

#include <algorithm>
#include <iterator>

namespace whorl::topology {
namespace {

constexpr std::uint32_t kNvidia = 0x10de, kAmd = 0x1002, kIntel = 0x8086, kAmazon = 0x1d0f;

Bandwidth table(double gb_per_s) { return {.gb_per_s = gb_per_s, .origin = Origin::kTable}; }

} // namespace

DeviceKind device_kind(std::uint32_t pci_class, std::uint32_t vendor, std::uint32_t device) {
  switch (pci_class >> 16U) {
    case 0x02:
      return DeviceKind::kNic;
    case 0x03: // a display adapter, of which only these vendors make some that compute
      return vendor == 0 || vendor == kNvidia || vendor == kAmd ||
                     (vendor == kIntel && (pci_class >> 8U) == 0x0380)
                 ? DeviceKind::kGpu
                 : DeviceKind::kOther;
    case 0x12: // processing accelerator
      return vendor == 0 || vendor == kNvidia || vendor == kAmd ? DeviceKind::kGpu
                                                                : DeviceKind::kOther;
    case 0x06:
      if ((pci_class >> 8U) == 0x0680) {
        return vendor == kNvidia || (vendor == 0 && device == 0) ? DeviceKind::kNvSwitch
                                                                 : DeviceKind::kOther;
      }
      return (pci_class >> 8U) == 0x0604 ? DeviceKind::kBridge : DeviceKind::kOther;
    default:
      return DeviceKind::kOther;
  }
}

bool always_rdma(std::uint32_t pci_class, std::uint32_t vendor, std::uint32_t device) {
  const std::uint32_t subclass = pci_class >> 8U;
  return subclass == 0x0207 || subclass == 0x0208 ||
         (vendor == kAmazon && (device & 0xfff0) == 0xefa0);
}

int add_port(Graph& graph, int card) {
  const int nic = graph.add(card, NodeKind::kNic);
  const Node& device = graph.at(card);
  graph.at(nic).bus_id = device.bus_id;
  graph.at(nic).rdma = always_rdma(device.pci_class, device.vendor, device.device);
  return nic;
}

bool made_with_links(std::uint32_t vendor, std::uint32_t device) {
  constexpr std::uint32_t kNvidiaModules[] = {
      0x15f9,                                         // P100
      0x1db1, 0x1db5, 0x1db8, 0x1df5,                 // V100
      0x20b0, 0x20b2, 0x20b3, 0x20f3,                 // A100, A800
      0x2324, 0x2329, 0x2330, 0x2335, 0x2336, 0x2339, // H800, H20, H100, H200
      0x2342, 0x2348, 0x2901, 0x2941, 0x3182, 0x31c2, // GH200, B200, GB200, B300, GB300
  };
  constexpr std::uint32_t kAmdModules[] = {
      0x7408, 0x740c,                                 // MI250X, MI250
      0x74a0, 0x74a1, 0x74a2, 0x74a5, 0x74b5, 0x74b9, // MI300, MI325 and their virtual functions
      0x75a0, 0x75a3,                                 // MI350X, MI355X
  };
  constexpr std::uint32_t kIntelModules[] = {0x0bd5, 0x0bd6}; // Max 1550
  const auto has = [device](const auto& ids) {
    return std::find(std::begin(ids), std::end(ids), device) != std::end(ids);
  };
  return (vendor == kNvidia && has(kNvidiaModules)) || (vendor == kAmd && has(kAmdModules)) ||
         (vendor == kIntel && has(kIntelModules));
}

bool named_as_rdma(std::string_view name) {
  constexpr std::string_view kPrefixes[] = {"mlx",  "rdma", "ib",   "roce", "bnxt_re",
                                            "cxi",  "efa",  "hfi1", "opa",  "irdma",
                                            "qedr", "hns",  "rxe",  "siw"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool named_as_virtual(std::string_view name) {
  constexpr std::string_view kPrefixes[] = {"veth", "docker", "virbr", "br-", "cni", "cali"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

Bandwidth nvlink_bandwidth(unsigned capability) {
  if (capability >= 100) return table(50);
  if (capability == 86) return table(14.0625);
  if (capability >= 70) return table(25);
  return capability >= 60 ? table(20) : Bandwidth{};
}

Bandwidth xgmi_bandwidth(unsigned gcn) {
  if (gcn >= 950) return table(76.8);
  if (gcn >= 940) return table(64);
  if (gcn >= 910) return table(50);
  return gcn >= 906 ? table(46) : Bandwidth{};
}

Bandwidth package_bandwidth(const Processor& processor) {
  if (processor.arch == "ppc64" || processor.arch == "ppc64le") return table(32);
  if (processor.vendor == "AuthenticAMD") return table(16);
  if (processor.vendor != "GenuineIntel" || processor.family != 6) return {};
  constexpr long kSkylake = 0x55, kSapphireRapids = 0x8f, kEmeraldRapids = 0xcf;
  if (processor.model >= kEmeraldRapids || processor.model == 0xad) return table(40);
  if (processor.model >= kSapphireRapids) return table(22);
  return processor.model >= kSkylake ? table(10) : table(6);
}

} // namespace whorl::topology
