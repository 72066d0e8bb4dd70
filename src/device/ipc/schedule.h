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

/// Part of one rank in collectives of ranks in several processes of a host that each have a device
/// of their own, or share one through MPS: a kernel of each rank interprets its schedule
/// (gpu/interpret.h), or exchanges blocks (gpu/exchange.h).
///
///     stream:  ready ─▶ until all are ─▶ kernel ─▶
///
/// Messages go through regions of device memory, which each rank maps of all others, once; buffers
/// of the program are accessed by their own device only. A kernel starts when the streams of all
/// ranks are ready, so that kernels wait for each other only. Used by one thread at a time, except
/// failure(). Must be destroyed after the kernels of all ranks have ended.
class DevicePeerSchedules {
 public:
  /// Makes one rank's part; `members` outlives this object.
  DevicePeerSchedules(const Membership& members, const DeviceRules& rules, SharedState board);
  /// Returns this rank's region, allocated at the first call in `context`, which is current.
  /// Returns an error if this rank can have none. May synchronise.
  Result<DeviceOffer> offer(CUcontext context);
  /// Maps the regions that all ranks have offered; `posts` are those of the current operation.
  /// Returns an error if a region cannot be mapped; then open() may be called again. May
  /// synchronise.
  Status open(std::span<const DeviceOffer> offers, std::span<const DevicePost> posts);

  /// Chooses a schedule, alike on all ranks, or an exchange if blocks of any rank may differ in
  /// size (`uneven`). Returns false if the host has to carry out the request. To be called after
  /// open().
  Result<bool> prepare(const Request& request, bool uneven);
  /// Queues this rank's part of the request of the last prepare().
  Status queue(const Request& request, StreamSync& barriers, StreamSync::Operation barrier);
  /// Captures this rank's part into the stream, without the barriers, whose words grow from one
  /// operation to the next: once a kernel has begun, it waits for those of the other ranks.
  Status capture(const Request& request, const StreamSync& barriers,
                 const StreamSync::Operation& barrier, const Capture& into);
  /// Waits for this rank's kernels, also those of graphs, which the barriers do not cover.
  void wait() const noexcept;

  /// Returns why kernels gave up, if they did: an error that names rank, operation and the rank
  /// that it waited for. In that case waits up to 0.1 s for the reports of the others. Any thread.
  Status failure() const;

 private:
  Result<bool> prepare_exchange(const Request& request);
  Status reach(int rank, const DeviceOffer& offer, const DevicePost& post);
  Status launch(const Request& request, const StreamSync& barriers,
                const StreamSync::Operation& barrier, std::uint64_t capture);
  std::vector<gpu::Report> reports() const;

  const Membership& members_;
  SharedState board_;
  const std::vector<std::string> names_;
  DevicePlanner planner_;
  std::unique_ptr<DeviceFifos> own_; ///< region of this rank alone
  gpu::MemoryExports exports_;
  std::unique_ptr<gpu::MemoryImports> imports_;
  std::uint32_t blocks_ = 0;      ///< number of blocks of a rank that fits on all devices
  std::vector<std::byte*> fifos_; ///< addresses on this device of all regions, by rank
  gpu::Launch launch_{};          ///< launch that prepare() has begun to fill in
  bool moves_ = false;            ///< true: the request moves data, so there is a launch
};

} // namespace whorl
