#pragma once

#include <cstdint>
#include "topology/graph.h"

namespace whorl::topology {

/// Kind of a PCI device, as far as it matters here.
enum class DeviceKind : std::uint8_t { kOther, kBridge, kGpu, kNic, kNvSwitch };

/// Tells the kind by class and ids; an id of 0 is unknown.
DeviceKind device_kind(std::uint32_t pci_class, std::uint32_t vendor, std::uint32_t device);
/// Returns whether a network device does RDMA whatever its driver says: InfiniBand, Omni-Path, EFA.
bool always_rdma(std::uint32_t pci_class, std::uint32_t vendor, std::uint32_t device);

/// Returns GB/s in one direction of one NVLink between GPUs of that compute capability × 10.
Bandwidth nvlink_bandwidth(unsigned capability);
/// Returns GB/s in one direction of one xGMI link between GPUs of that gcn number (908, 910, 942).
Bandwidth xgmi_bandwidth(unsigned gcn);

/// Returns GB/s in one direction that devices get between two packages.
Bandwidth package_bandwidth(const Processor& processor);

} // namespace whorl::topology
