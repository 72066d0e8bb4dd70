#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "engine/request.h"

// The decision which part of the system carries out a collective on device memory: a pure function
// of what all ranks have posted and of what their group can do, so that ranks in several processes
// decide alike. Nothing here calls a driver.
namespace whorl {

/// Value of WHORL_DEVICE_ALGO, which says who may carry out collectives on device memory.
enum class DeviceAlgo : std::uint8_t { kAny, kFused, kSchedule, kHost };
Result<DeviceAlgo> device_algo();

/// Whether kernels can carry out such a request, or, if it is a barrier, the streams alone. Sums of
/// blocks that differ in size only suit kernels on one device.
bool suits_devices(const Request& request) noexcept;

/// Place where a rank's kernels run.
struct DevicePlace {
  std::uint64_t process = 0;          ///< the same number on ranks of one process
  std::array<std::byte, 16> device{}; ///< UUID
  std::uint64_t context = 0;          ///< the context, a number within the process
};

/// Distribution of the ranks of a communicator over devices.
enum class DeviceLayout {
  kOneDevice,  ///< all ranks on one device, the ranks of each process in one context
  kOwnDevices, ///< each rank on a device of its own
  kOtherwise,
};
/// Finds the layout of all ranks of a communicator.
DeviceLayout layout_of(std::span<const DevicePlace> ranks);

/// Part of the system that carries out a collective.
enum class DevicePath {
  kHost,
  kBarrier,  ///< streams that wait for each other
  kFused,    ///< kernels that read all inputs and write all outputs where they are
  kSchedule, ///< kernels that interpret a schedule
};

/// Facts that the ranks of a collective have posted, and abilities of their group.
struct DeviceFacts {
  bool on_device = false; ///< kernels of every rank reach that rank's buffers
  bool shared = false;    ///< kernels of every rank reach the buffers of all, if on one device
  bool barrier = false;   ///< the collective is a barrier, which has no buffers
  /// Blocks that may differ in size are combined, as kernels that exchange messages cannot do.
  bool uneven_sums = false;
  bool one_process = false;
  bool together = false;  ///< kernels of several processes run on a device together (MPS)
  bool schedules = false; ///< the group can interpret schedules, or has not tried yet
  DeviceLayout layout = DeviceLayout::kOtherwise;
  DeviceAlgo algo = DeviceAlgo::kAny; ///< kFused if any rank is set to it, else kSchedule likewise
};
/// Chooses who carries out a collective that all its ranks have posted.
DevicePath choose_device_path(const DeviceFacts& facts) noexcept;

/// Capture of a rank's stream into a graph.
struct DeviceCapture {
  bool possible = true;      ///< the rank's driver can capture that streams wait for each other
  std::uint64_t process = 0; ///< the same number on ranks of one process
  std::uint64_t graph = 0;   ///< a number of the capture in the process; 0: not known
};
/// Returns why an operation of several processes that all ranks capture into graphs cannot be
/// captured on `path`; empty if it can. `schedules_ready` says whether messages have gone between
/// the devices before.
std::string why_not_captured(DevicePath path, bool schedules_ready,
                             std::span<const DeviceCapture> ranks,
                             std::span<const std::string> names);

} // namespace whorl
