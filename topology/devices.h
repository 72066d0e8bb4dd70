#pragma once

#include <cstdint>
#include <string_view>

#include "topology/graph.h"

namespace whorl::topology {

/// Kind of a PCI device, as far as it matters here.
enum class DeviceKind : std::uint8_t { kOther, kBridge, kGpu, kNic, kNvSwitch };

/// Tells the kind by class and ids; an id of 0 is unknown.
DeviceKind device_kind(std::uint32_t pci_class, std::uint32_t vendor, std::uint32_t device);
/// Returns whether a network device does RDMA whatever its driver says: InfiniBand, Omni-Path, EFA.
bool always_rdma(std::uint32_t pci_class, std::uint32_t vendor, std::uint32_t device);

/// Adds a port to a network card. Returns its node.
int add_port(Graph& graph, int card);

/// Returns whether a GPU is of a model that is always built with links to others beside PCI.
bool made_with_links(std::uint32_t vendor, std::uint32_t device);

/// Returns whether a device's name is one that Linux gives to RDMA devices: "mlx5_0", "rdmap16s27".
bool named_as_rdma(std::string_view name);
/// Returns whether a network interface's name is one that containers and virtual machines give to
/// interfaces within a machine: "veth608058c", "docker0".
bool named_as_virtual(std::string_view name);

/// Returns GB/s in one direction of one NVLink between GPUs of that compute capability × 10.
Bandwidth nvlink_bandwidth(unsigned capability);
/// Returns GB/s in one direction of one xGMI link between GPUs of that gcn number (908, 910, 942).
Bandwidth xgmi_bandwidth(unsigned gcn);

/// Returns GB/s in one direction that devices get between two packages.
Bandwidth package_bandwidth(const Processor& processor);

} // namespace whorl::topology
