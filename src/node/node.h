#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "node/fd_channel.h"
#include "node/segment.h"

namespace whorl {

/// Objects that a communicator's ranks on one host share, apart from the FIFOs in which a transport
/// moves messages: memory, and channels for descriptors. The ranks meet when the transport between
/// their processes connects:
///
///     segment:  board │ memory of the transport
///
/// Empty until the ranks have met, and if another transport connects them. Owned by the
/// communicator and the transport together. Used by one thread at a time, except where a comment
/// says "any thread".
class Node {
 public:
  /// Meets the other ranks of `plan.members`, each of which makes the same call, in a segment that
  /// has `plan.segment.bytes` for the transport. Called at most once. An error names the rank.
  Result<ShmMeeting> meet(ShmMeetingPlan plan);

  /// Returns the memory that all ranks of this host share: board_bytes_for() the ranks, in pages,
  /// zeros at first; empty if the ranks have not met. May be called by any thread, once they have.
  std::span<std::byte> board() const noexcept;
  /// Returns the transport's part of the segment. May be called by any thread, once the ranks have
  /// met.
  std::span<std::byte> transport_memory() const noexcept;
  /// Backs a part of transport_memory() with memory; −errno if the host has none left. May be
  /// called by any thread.
  int allocate(std::span<const std::byte> memory) noexcept;
  /// Returns the channel for descriptors to the rank kDeviceLeader from ranks of other processes,
  /// which has ends only if Membership::shares_devices(); null if the ranks have not met.
  FdChannel* fd_channel() noexcept { return segment_.data() == nullptr ? nullptr : &fd_channel_; }

 private:
  ShmSegment segment_;
  std::size_t board_bytes_ = 0;
  FdChannel fd_channel_; ///< the channel; without ends if no devices are shared
};

} // namespace whorl
