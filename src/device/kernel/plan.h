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

/// Schedule that kernels interpret, or none: for a direct exchange (gpu/direct.h), and for an
/// exchange of blocks (gpu/exchange.h), which has programs all the same.
struct DevicePlan {
  std::vector<Schedule> schedules;           ///< schedules by rank
  std::vector<std::vector<std::byte>> bytes; ///< programs by rank: device_program(), or of blocks
  /// Programs by device; null: not there, or not needed. Empty: the plan is for one operation,
  /// whose programs cannot be uploaded.
  std::vector<const std::byte*> uploaded;
  bool lanes_wait = false;
};

/// Planner of collectives that kernels carry out by interpreting a schedule (gpu/interpret.h):
/// chooses the algorithm, the number of its instances and the chunks of the vector. The choice
/// follows from the request and from settings that all ranks have alike, so ranks of several
/// processes choose alike. Used by one thread at a time.
class DevicePlanner {
 public:
  DevicePlanner(const Membership& members, DeviceRules rules);

  /// Sets up the selector; to be called before the functions below. Returns an error if WHORL_ALGO
  /// is wrong.
  Status prepare();
  const gpu::FifoLayout& layout() const noexcept { return layout_; }
  /// Returns the bytes of scratch memory that a rank needs for any request.
  std::size_t scratch_bytes() const noexcept { return scratch_bytes_; }
  /// Returns a hash of the settings, equal on ranks that make the same plans.
  std::uint64_t fingerprint() const;

  /// Returns whether the request moves any data.
  bool moves(const Request& request) const;
  /// Returns the plan of a request, made at its first use. `devices` is the number of devices to
  /// which programs may be uploaded, `blocks` the number of blocks of each rank for which every
  /// device has room.
  Result<DevicePlan*> plan(const Request& request, std::size_t devices, std::uint32_t blocks);
  /// Sets the fields that the launches of an operation on all devices have in common, except
  /// addresses and the timeout. `blocks` is as for plan(). Returns false if kernels cannot carry
  /// out the request.
  bool set(gpu::Launch& launch, const DevicePlan& plan, const Request& request,
           std::uint32_t blocks);
  /// Sets the same fields, except the number of instances, for an exchange of blocks that may
  /// differ in size (device/kernel/exchange.h), which needs no plan.
  bool set_exchange(gpu::Launch& launch, const Request& request, std::uint32_t blocks);
  /// Logs why the host has to carry out operations, unless it was the last reason as well. Returns
  /// false.
  bool refuse(const std::string& why);

 private:
  std::size_t larger_side(const Request& request) const;
  const Algorithm& algorithm_for(const Request& request) const;
  bool goes_directly(const Request& request, std::uint32_t blocks) const;
  std::size_t max_scratch() const;

  const std::string name_;
  gpu::FifoLayout layout_;
  DeviceRules rules_;
  Selector selector_;                                            ///< selector, set by prepare()
  std::size_t scratch_bytes_ = 0;                                ///< bytes, set by prepare()
  std::string notified_;                                         ///< last reason in the log
  DevicePlan direct_;                                            ///< plan of direct exchanges
  std::map<std::pair<const Algorithm*, int>, DevicePlan> plans_; ///< plans by algorithm and root
};

/// Copies programs into the parameters of a launch. Returns false if they do not fit.
bool set_programs(gpu::Launch& launch, std::span<const std::byte> programs);

} // namespace whorl
