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

/// One rank's part in collectives of ranks on one device in several processes: each maps the
/// buffers of the others and does its slice of the work on them, for all ranks.
///
///     stream:  ready ─▶ until all are ─▶ kernel on a slice of all buffers ─▶ until all are done
///
/// Calls by one thread at a time. `gates` end before this does.
class DeviceSlices {
 public:
  /// All arguments but the context outlive this, or the last call.
  DeviceSlices(const Membership& members, const std::vector<std::string>& names,
               const DeviceWatch& watch, DeviceGates& gates, FdMailbox* mailbox, CUcontext context)
      : members_(members),
        names_(names),
        watch_(watch),
        gates_(gates),
        context_(context),
        mappings_(members, mailbox),
        imports_(context),
        requests_(static_cast<std::size_t>(members.nranks)) {}

  /// Says in a post how other processes get at the buffers. False: they cannot.
  bool describe(const Request& request, DevicePost& post);
  /// Whether the buffers of all ranks are mapped.
  bool known(std::span<const DevicePost> posts) const;
  /// Begins to hand over to the other processes what is new and has no IPC handle in operation
  /// `number`, and to take theirs.
  void begin_mapping(std::uint64_t number, std::span<const DevicePost> posts);
  /// Goes on with that. kDone: map() can be called. kFailed: see mapping_error().
  Progress hand_over();
  const Status& mapping_error() const noexcept { return mappings_.error(); }
  bool waits_for(int rank) const noexcept { return mappings_.waits_for(rank); }
  /// Lets go of what is being handed over.
  void stop_mapping();
  /// Maps what is new: all of it, also after an error, so that what has been mapped before is let
  /// go alike on all ranks.
  Status map(std::span<const DevicePost> posts);
  /// A rank could not map all of it, so no rank has it. What is mapped is alike on all, and the
  /// next operation begins anew: what is in the way may be memory that another rank has freed
  /// meanwhile.
  void forget_new();
  /// Queues this rank's slice; all buffers are mapped.
  Status queue(const Request& request, std::span<const DevicePost> posts,
               DeviceGates::Operation gate);
  /// The same in a stream that is being captured. The buffers stay mapped until release().
  Status capture(const Request& request, std::span<const DevicePost> posts,
                 DeviceGates::Operation gate, const Capture& into, DeviceReplays& replays);
  /// Lets go of the buffers of captured operations whose graphs are gone on all ranks.
  void release(std::span<const DevicePost> posts);

 private:
  bool is_here(int rank) const; ///< in this process
  Status open(int rank, const gpu::SharedMemory& memory, bool here);
  void close_retired(std::uint64_t last);
  Status find_buffers(const Request& request, std::span<const DevicePost> posts,
                      std::uint64_t epoch);
  Status launch(CUstream stream, int workers) const;

  const Membership& members_;
  const std::vector<std::string>& names_;
  const DeviceWatch& watch_;
  DeviceGates& gates_;
  CUcontext context_;
  gpu::MemoryExports exports_;
  DeviceMappings mappings_;
  gpu::MemoryImports imports_;
  struct NewMemory {
    int rank;
    gpu::SharedMemory memory;
  };
  std::vector<NewMemory> new_memory_; ///< of the last map(), that no rank had mapped
  std::vector<Request> requests_;     ///< [rank] with the addresses here
};

} // namespace whorl
