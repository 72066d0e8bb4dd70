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

/// Collectives of ranks of one process on one or several devices that reach each other: a kernel on
/// each device interprets the schedules of the ranks there (gpu/interpret.h), or exchanges their
/// blocks (gpu/exchange.h).
///
///     streams of all ranks ──ready──▶ stream of each device: kernel ──done──▶ its ranks' streams
///
/// A kernel starts when the streams of all ranks are ready, so that kernels wait for each other
/// only. Used by one thread at a time, except stop() and failure().
class DeviceSchedules {
 public:
  /// Call that a rank has posted.
  struct Call {
    const Request* request;
    CUcontext context;
    CUstream stream;
    CUevent ready; ///< event recorded in the stream
    std::uint64_t timeout_ns;
  };

  DeviceSchedules(const Membership& members, const DeviceRules& rules);
  ~DeviceSchedules();
  DeviceSchedules(const DeviceSchedules&) = delete;
  DeviceSchedules& operator=(const DeviceSchedules&) = delete;

  /// Queues one collective; `calls` are those of all ranks by rank, equal but for the buffers.
  /// Returns false if kernels cannot do it on these devices, or not this operation; a line of the
  /// log says why.
  Result<bool> launch(std::span<const Call> calls);

  /// Makes waiting kernels give up, now and later; a kernel checks for that after 64 reads of a
  /// flag, or some thousand of a line.
  void stop() noexcept;
  /// Returns why kernels gave up, if they did: an error that names rank, operation and the rank
  /// that it waited for.
  Status failure() const;

 private:
  Result<bool> prepare(std::span<const Call> calls, bool capturing);
  Result<bool> plan_exchange(gpu::Launch& launch, DevicePlan& plan, std::span<const Call> calls,
                             std::uint32_t blocks);
  Result<bool> fill(gpu::Launch& launch, DevicePlan& plan, std::span<const Call> calls,
                    std::size_t device, bool capturing);
  Result<bool> queue(const gpu::Launch& launch, const DeviceFifos::Device& device,
                     std::span<const Call> calls, std::uint64_t capture);

  DevicePlanner planner_;
  const std::vector<std::string> names_; ///< names of the ranks
  bool refused_ = false;                 ///< true: no operation is possible any more
  std::unique_ptr<DeviceFifos> fifos_;
};

} // namespace whorl
