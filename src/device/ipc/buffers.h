#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "base/wait.h"
#include "device/ipc/mappings.h"
#include "device/ipc/shared_state.h"
#include "engine/request.h"
#include "gpu/peer_memory.h"
#include "node/fd_channel.h"

namespace whorl {

/// Buffers of one rank, for the kernel of the leader (device/ipc/leader.h). Ranks in the leader's
/// process, and the leader itself, give their addresses; others give handles, or descriptors where
/// the leader asks for them. Used by one thread at a time.
class DeviceBuffers {
 public:
  /// Makes the part of rank `members.rank`. `members` and `fd_channel`, which may be null, outlive
  /// this object.
  DeviceBuffers(const Membership& members, const SharedState& board, FdChannel* fd_channel)
      : members_(members), board_(board), sender_(members.rank, fd_channel) {}

  /// Describes the blocks of a request in its post and in `places`, if they may differ in size.
  void describe_blocks(const Request& request, DevicePost& post,
                       std::vector<BlockPlace>& places) const;
  /// Describes the buffers in a post. Returns false if the leader cannot reach them. The context of
  /// the memory is current.
  bool describe(const Request& request, DevicePost& post);
  /// Hands over the memory of `post`, in `context`, that the leader asks for in operation `number`.
  /// kIdle: the leader has not asked, or the messages have no room. kDone: all has been sent.
  /// kFailed: see error().
  Progress hand_over(std::uint64_t number, const DevicePost& post, CUcontext context);
  const Status& error() const noexcept { return error_; }
  /// Ends the part of this rank in an operation.
  void end_operation();

 private:
  bool find(const void* buffer, std::size_t bytes, gpu::SharedMemory& memory);
  Status send(std::uint64_t number, const DevicePost& post, SharedState::Wanted wanted);

  const Membership& members_;
  SharedState board_;
  gpu::MemoryExports exports_;
  RunSender sender_;
  bool sending_ = false;
  Status error_;
};

} // namespace whorl
