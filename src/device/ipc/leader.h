#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "base/wait.h"
#include "device/common/group.h"
#include "device/ipc/graph_replay.h"
#include "device/ipc/mappings.h"
#include "device/ipc/shared_state.h"
#include "device/ipc/stream_sync.h"
#include "engine/request.h"
#include "gpu/peer_memory.h"
#include "gpu/work.h"

namespace whorl {

/// Part of the leader in collectives of ranks on one device in several processes: the leader maps
/// the buffers of all ranks and launches the kernel that carries out the operation for all. Kernels
/// of several processes would take turns on the device, so more of them bring no bandwidth.
///
///     leader's stream:  ready ─▶ until all are ─▶ kernel ─▶ done ─▶
///     other streams:    ready ─▶ until the leader is done ─────────▶
///
/// Used by one thread at a time. `sync` must be destroyed before this object.
class DeviceLeader {
 public:
  /// References must outlive this object, but `sync` only the last call. `fd_channel` may be null.
  DeviceLeader(const Membership& members, const std::vector<std::string>& names,
               const DeviceWatch& watch, const SharedState& board, StreamSync& sync,
               FdChannel* fd_channel, CUcontext context)
      : members_(members),
        names_(names),
        watch_(watch),
        board_(board),
        sync_(sync),
        context_(context),
        receiver_(members, fd_channel),
        imports_(context),
        requests_(static_cast<std::size_t>(members.nranks)) {}

  /// Begins operation `number`: asks for memory that is not mapped and has no IPC handle.
  void begin(std::uint64_t number, std::span<const DevicePost> posts);
  /// Receives the memory that begin() asked for, then maps what is not mapped. kDone: all buffers
  /// are mapped. kFailed: see error(). What has been mapped stays so.
  Progress map(std::span<const DevicePost> posts);
  const Status& error() const noexcept { return error_; }
  /// Returns whether memory of a rank has yet to come.
  bool waits_for(int rank) const noexcept { return receiver_.waits_for(rank); }
  /// Abandons what begin() began.
  void stop();
  /// Queues the operation. All buffers must be mapped.
  Status queue(const Request& request, std::span<const DevicePost> posts,
               const StreamSync::Operation& barrier);
  /// Captures the operation into the stream. The buffers stay mapped until release().
  Status capture(const Request& request, std::span<const DevicePost> posts,
                 const StreamSync::Operation& barrier, const Capture& into, DeviceReplays& replays);
  /// Unpins the buffers of captured operations before `first`, whose graphs have been destroyed.
  void release(std::uint64_t first) noexcept { imports_.release(first); }

 private:
  template <class Action>
  void for_all_of_others(std::span<const DevicePost> posts, Action&& action) const;
  Status map_new(std::span<const DevicePost> posts);
  Status open(int rank, const gpu::SharedMemory& memory);
  void close_retired(std::uint64_t last);
  bool find_blocks(int rank, const DevicePost& post, Request& request) const;
  Status find_buffers(const Request& request, std::span<const DevicePost> posts,
                      std::uint64_t epoch);
  std::byte* address_of(int rank, const gpu::SharedMemory& memory, std::size_t bytes,
                        std::uint64_t epoch);
  Status launch(const Request& request, CUstream stream);

  const Membership& members_;
  const std::vector<std::string>& names_;
  const DeviceWatch& watch_;
  SharedState board_;
  StreamSync& sync_;
  CUcontext context_;
  std::uint64_t number_ = 0; ///< operation of the last begin()
  RunReceiver receiver_;
  gpu::MemoryImports imports_;
  Status error_;
  std::vector<Request> requests_; ///< requests by rank, with addresses in this process
  std::vector<gpu::Work> works_;  ///< launches of the operation in progress
};

} // namespace whorl
