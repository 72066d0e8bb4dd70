#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "device/common/group.h"
#include "device/ipc/graph_replay.h"
#include "device/ipc/mappings.h"
#include "device/ipc/shared_state.h"
#include "device/ipc/stream_sync.h"
#include "engine/request.h"
#include "gpu/peer_memory.h"

namespace whorl {

/// Part of one rank in collectives of ranks on one device in several processes: each rank maps the
/// buffers of the others and does its slice of the work on them, for all ranks.
///
///     stream:  ready ─▶ until all are ─▶ kernel on a slice of all buffers ─▶ until all are done
///
/// Used by one thread at a time. `barriers` must be destroyed before this object.
class DeviceSlices {
 public:
  /// References must outlive this object, but `barriers` only the last call.
  DeviceSlices(const Membership& members, const std::vector<std::string>& names,
               const DeviceWatch& watch, StreamSync& barriers, FdChannel* fd_channel,
               CUcontext context)
      : members_(members),
        names_(names),
        watch_(watch),
        sync_(barriers),
        context_(context),
        mappings_(members, fd_channel),
        imports_(context),
        requests_(static_cast<std::size_t>(members.nranks)) {}

  /// Describes in a post how other processes can map the buffers. Returns false if they cannot.
  bool describe(const Request& request, DevicePost& post);
  /// Returns whether the buffers of all ranks are mapped.
  bool known(std::span<const DevicePost> posts) const;
  /// Begins, in operation `number`, to send new memory without an IPC handle to the other
  /// processes, and to receive theirs.
  void begin_mapping(std::uint64_t number, std::span<const DevicePost> posts);
  /// Continues what begin_mapping() began. kDone: map() can be called. kFailed: see
  /// mapping_error().
  Progress hand_over();
  const Status& mapping_error() const noexcept { return mappings_.error(); }
  bool waits_for(int rank) const noexcept { return mappings_.waits_for(rank); }
  /// Abandons what begin_mapping() began.
  void stop_mapping();
  /// Maps all new memory, and continues after an error, so that all ranks unmap the same older
  /// memory to make room.
  Status map(std::span<const DevicePost> posts);
  /// Unmaps the memory of the last map(), which some rank could not map, and all other memory once
  /// it is unused: all ranks must have the same mappings. The next operation maps anew, since the
  /// reason of the failure may be memory that another rank frees meanwhile.
  void forget_new();
  /// Queues this rank's slice. All buffers must be mapped.
  Status queue(const Request& request, std::span<const DevicePost> posts,
               StreamSync::Operation barrier);
  /// Captures this rank's slice into the stream. The buffers stay mapped until release().
  Status capture(const Request& request, std::span<const DevicePost> posts,
                 StreamSync::Operation barrier, const Capture& into, DeviceReplays& replays);
  /// Unpins the buffers of captured operations whose graphs have been destroyed on all ranks.
  void release(std::span<const DevicePost> posts);

 private:
  bool is_here(int rank) const; ///< returns whether a rank is in this process
  Status open(int rank, const gpu::SharedMemory& memory, bool here);
  void close_retired(std::uint64_t last);
  Status find_buffers(const Request& request, std::span<const DevicePost> posts,
                      std::uint64_t epoch);
  Status launch(CUstream stream, int workers) const;

  const Membership& members_;
  const std::vector<std::string>& names_;
  const DeviceWatch& watch_;
  StreamSync& sync_;
  CUcontext context_;
  gpu::MemoryExports exports_;
  DeviceMappings mappings_;
  gpu::MemoryImports imports_;
  struct NewMemory {
    int rank;
    gpu::SharedMemory memory;
  };
  std::vector<NewMemory> new_memory_; ///< memory that the last map() mapped, or tried to
  std::vector<Request> requests_;     ///< requests by rank, with addresses in this process
};

} // namespace whorl
