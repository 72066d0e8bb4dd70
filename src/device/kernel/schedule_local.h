#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "device/common/group.h"
#include "device/kernel/fifos.h"
#include "device/kernel/plan.h"
#include "engine/request.h"

namespace whorl {

/// Carries out collectives of ranks of one process on one or several devices that reach each other:
/// a kernel on each device interprets the schedules of the ranks there (gpu/interpret.h).
///
///     streams of all ranks ──ready──▶ stream of each device: kernel ──done──▶ its ranks' streams
///
/// A kernel starts when the streams of all ranks are ready, so that kernels wait for each other
/// only. One thread at a time, but for stop() and failure().
class DeviceSchedules {
 public:
  /// What a rank has posted.
  struct Call {
    const Request* request;
    CUcontext context;
    CUstream stream;
    CUevent ready; ///< recorded in the stream
    std::uint64_t timeout_ns;
  };

  DeviceSchedules(const Membership& members, const DeviceRules& rules);
  ~DeviceSchedules();
  DeviceSchedules(const DeviceSchedules&) = delete;
  DeviceSchedules& operator=(const DeviceSchedules&) = delete;

  /// Queues one collective; `calls` are those of all ranks by rank, alike but for the buffers.
  /// False: these devices, or this operation, cannot be served; a line of the log says why.
  Result<bool> launch(std::span<const Call> calls);

  /// Ends what waits, now and later; a kernel looks after every 64 looks at a flag.
  void stop() noexcept;
  /// Why kernels gave up, if they did: a sentence that names rank, operation and whom it waited
  /// for.
  Status failure() const;

 private:
  Result<bool> prepare(std::span<const Call> calls, bool capturing);
  Result<bool> fill(gpu::Launch& launch, DevicePlan& plan, std::span<const Call> calls,
                    std::size_t device, bool capturing);
  Result<bool> queue(const gpu::Launch& launch, const DeviceRegions::Device& device,
                     std::span<const Call> calls, std::uint64_t capture);

  DevicePlanner planner_;
  const std::vector<std::string> names_; ///< of the ranks
  bool refused_ = false;                 ///< for good
  std::unique_ptr<DeviceRegions> regions_;
};

} // namespace whorl
