#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "device/common/capture.h"
#include "device/common/group.h"
#include "device/ipc/shared_state.h"
#include "device/ipc/stream_sync.h"
#include "device/kernel/fifos.h"
#include "device/kernel/plan.h"
#include "engine/request.h"
#include "gpu/peer_memory.h"

namespace whorl {

/// One rank's part in collectives of ranks that each have a device of their own, in several
/// processes of a host: a kernel on each device interprets the rank's schedule (gpu/interpret.h).
///
///     stream:  ready ─▶ until all are ─▶ kernel ─▶
///
/// Messages go through regions of device memory that each rank maps of all others, once; buffers of
/// the program are touched by their own device only. A kernel starts when the streams of all ranks
/// are ready, so that kernels wait for each other only. One thread at a time, but for failure().
/// Its end comes after that of the kernels of all ranks.
class DevicePeerSchedules {
 public:
  /// `members` outlives this.
  DevicePeerSchedules(const Membership& members, const DeviceRules& rules, DeviceBoard board);
  /// Allocates this rank's region in a context, which is current, unless it has one. An error, a
  /// sentence, if this rank can have none. May synchronise.
  Result<DeviceOffer> offer(CUcontext context);
  /// Maps the regions that all ranks have offered; `posts` are of the operation at work. An error
  /// if one cannot be reached; it may be called again. May synchronise.
  Status open(std::span<const DeviceOffer> offers, std::span<const DevicePost> posts);

  /// Chooses a schedule; on all ranks alike. False: the host has to do it. After open().
  Result<bool> prepare(const Request& request);
  /// Queues this rank's part of the request that prepare() was given last.
  Status queue(const Request& request, DeviceGates& gates, DeviceGates::Operation gate);
  /// The same in a stream that is being captured, without the gates, whose words grow from one
  /// operation to the next: the kernel waits for those of the others from when it begins.
  Status capture(const Request& request, const DeviceGates& gates,
                 const DeviceGates::Operation& gate, const Capture& into);
  /// Waits for this rank's kernels, also those of graphs, which the gates know nothing of.
  void wait() const noexcept;

  /// Why kernels gave up, if they did: a sentence that names rank, operation and whom it waited
  /// for. Then waits a moment for what the others report. Any thread.
  Status failure() const;

 private:
  Status reach(int rank, const DeviceOffer& offer, const DevicePost& post);
  Status launch(const Request& request, const DeviceGates& gates,
                const DeviceGates::Operation& gate, std::uint64_t capture);
  std::vector<gpu::Report> reports() const;

  const Membership& members_;
  DeviceBoard board_;
  const std::vector<std::string> names_;
  DevicePlanner planner_;
  std::unique_ptr<DeviceRegions> own_; ///< of this rank alone
  gpu::MemoryExports exports_;
  std::unique_ptr<gpu::MemoryImports> imports_;
  std::uint32_t blocks_ = 0;        ///< of each rank that all devices have room for
  std::vector<std::byte*> regions_; ///< by rank, as this device reaches them
  gpu::Launch launch_{};            ///< that prepare() has begun
  bool moves_ = false;              ///< it is one
};

} // namespace whorl
