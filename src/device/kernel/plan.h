#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "device/common/group.h"
#include "engine/request.h"
#include "gpu/program.h"
#include "schedule/schedule.h"
#include "tuning/selector.h"

namespace whorl {

/// A schedule that kernels interpret.
struct DevicePlan {
  std::vector<Schedule> schedules;           ///< by rank
  std::vector<std::vector<std::byte>> bytes; ///< by rank, see device_program()
  std::vector<const std::byte*> uploaded;    ///< by device; null: not, or not needed
  bool lanes_wait = false;
};

/// Chooses how kernels carry out a collective by interpreting a schedule (gpu/interpret.h): the
/// algorithm, how many instances of it, how the vector is cut. Follows from the request and from
/// what all ranks have alike, so those of several processes come to the same. One thread at a time.
class DevicePlanner {
 public:
  DevicePlanner(const Membership& members, DeviceRules rules);

  /// Before all that follows. An error if WHORL_ALGO is wrong.
  Status prepare();
  const gpu::FifoLayout& layout() const noexcept { return layout_; }
  /// Scratch memory that a rank needs, whatever the request.
  std::size_t scratch_bytes() const noexcept { return scratch_bytes_; }
  /// Equal on ranks that come to the same plans.
  std::uint64_t fingerprint() const;

  /// Whether there is anything to do.
  bool moves(const Request& request) const;
  /// `devices`: those that programs may be uploaded to.
  Result<DevicePlan*> plan(const Request& request, std::size_t devices);
  /// Sets all that the launches of an operation have alike, but for addresses and the timeout.
  /// `blocks`: of each rank that every device has room for. False: that cannot be.
  bool set(gpu::Launch& launch, const DevicePlan& plan, const Request& request,
           std::uint32_t blocks);
  /// Logs why the host has to do it, unless that was the last reason as well. False.
  bool refuse(const std::string& why);

 private:
  std::size_t larger_side(const Request& request) const;
  const Algorithm& algorithm_for(const Request& request) const;
  std::size_t most_scratch() const;

  const std::string name_;
  gpu::FifoLayout layout_;
  DeviceRules rules_;
  Selector selector_;                                            ///< from prepare() on
  std::size_t scratch_bytes_ = 0;                                ///< the same
  std::string told_;                                             ///< in the log
  std::map<std::pair<const Algorithm*, int>, DevicePlan> plans_; ///< by algorithm and root
};

/// Puts the programs of a launch into it, if they fit.
bool set_programs(gpu::Launch& launch, std::span<const std::byte> programs);

} // namespace whorl
