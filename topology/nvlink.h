#pragma once

#include <string>
#include <vector>

#include "gpu/nvml.h"

namespace whorl::gpu {

/// Active NVLink of a device.
struct NvLink {
  unsigned link = 0;
  unsigned version = 0; ///< version of NVLink; 0: unknown
  enum class End { kGpu, kSwitch, kOther } end = End::kOther;
  std::string peer_bus_id; ///< bus id of the device or switch at the other end
};

/// Access of one device to the memory of another: possible, or the reason why not.
enum class Reach {
  kWorks,
  kChipset,  ///< unsupported by the chipset
  kDevice,   ///< unsupported by the device
  kTopology, ///< impossible, because the devices are on different I/O hubs
  kDisabled, ///< disabled in the driver's settings
  kNot,      ///< unsupported
  kUnknown,
};
const char* words_of(Reach reach);

/// Paths between two devices of a machine, from the first to the second.
struct DevicePair {
  std::size_t from = 0, to = 0; ///< indices in DeviceLinks::bus_ids
  Reach read = Reach::kUnknown, write = Reach::kUnknown;
  Reach atomics = Reach::kUnknown, nvlink = Reach::kUnknown;
  /// Number of NVLinks between the two; links to a switch count for every device with links to one.
  unsigned nvlinks = 0;
};

struct DeviceLinks {
  std::vector<std::string> bus_ids;       ///< bus ids of the devices
  std::vector<std::vector<NvLink>> links; ///< active NVLinks of each device
  std::vector<DevicePair> pairs;          ///< all ordered pairs
};

/// Finds the links of all devices that this process may see. `nvml` is ready.
DeviceLinks find_links(const Nvml& nvml);

} // namespace whorl::gpu
