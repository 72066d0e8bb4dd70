#pragma once

#include <string>
#include <vector>

#include "gpu/nvml.h"

namespace whorl::gpu {

/// One active NVLink of a device.
struct NvLink {
  unsigned link = 0;
  unsigned version = 0; ///< of NVLink; 0: unknown
  enum class End { kGpu, kSwitch, kOther } end = End::kOther;
  std::string peer_bus_id; ///< of what is at the other end
};

/// Whether one device reaches the memory of another, and if not, why.
enum class Reach {
  kWorks,
  kChipset,  ///< the chipset cannot
  kDevice,   ///< the device cannot
  kTopology, ///< they hang on different I/O hubs
  kDisabled, ///< by the driver's settings
  kNot,      ///< not supported
  kUnknown,
};
const char* words_of(Reach reach);

/// Between two devices of a machine, from the first to the second.
struct DevicePair {
  std::size_t from = 0, to = 0; ///< indices in DeviceLinks::bus_ids
  Reach read = Reach::kUnknown, write = Reach::kUnknown;
  Reach atomics = Reach::kUnknown, nvlink = Reach::kUnknown;
  /// NVLinks between the two; those to a switch count for every device that hangs on a switch.
  unsigned nvlinks = 0;
};

struct DeviceLinks {
  std::vector<std::string> bus_ids;       ///< of the devices
  std::vector<std::vector<NvLink>> links; ///< of each device
  std::vector<DevicePair> pairs;          ///< of all ordered pairs
};

/// Of all devices that this process may see. `nvml` is ready.
DeviceLinks find_links(const Nvml& nvml);

} // namespace whorl::gpu
