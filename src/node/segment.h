#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/membership.h"
#include "base/shm_segment.h"
#include "base/status.h"
#include "base/system.h"

namespace whorl {

/// A descriptor that stands for one process, named by the lowest of its ranks, or for one rank.
struct ProcessFd {
  int rank = 0;
  Fd fd;
};

/// What a rank holds once it has met the others of its host.
struct ShmMeeting {
  ShmSegment segment;
  std::vector<ProcessFd> heaps;    ///< of the other processes that have one
  std::vector<ProcessFd> pidfds;   ///< of the other processes, where the kernel allows it
  std::vector<ProcessFd> outboxes; ///< of all ranks in other processes that have one (FdMailbox)
  std::vector<ProcessFd> sockets;  ///< to all others (lowest rank) or to the lowest rank; stay open
};

/// The segment that the lowest rank makes and all others map.
struct SegmentPlan {
  std::size_t bytes = 0;
  std::size_t backed_bytes = 0; ///< of these, from the first on, have memory from the start
  std::function<void(std::byte* segment)> stamp;         ///< writes the header of a new segment
  std::function<Status(const std::byte* segment)> check; ///< compares the header of a received one
};

/// What a rank brings along.
struct ShmMeetingPlan {
  const Membership* membership = nullptr;
  std::vector<int> members; ///< ranks of this host, ascending; with this rank
  SegmentPlan segment;
  std::size_t index = 0; ///< of the transport in RankCard::addresses
  const Fd* listener = nullptr;
  int heap_fd = -1;   ///< of this process; −1: none
  int outbox_fd = -1; ///< for the others to write to this rank's FdMailbox; −1: none
  std::uint64_t deadline_ns = 0;
};

/// Processes of a host up to which each has descriptors of all others: of their heaps, and to watch
/// them. Of more, all messages are copied through slots, and a process watches the first one and
/// those at a distance of a power of two in the order of ranks; who finds one dead tells all.
inline constexpr std::size_t kMostProcesses = 128;

/// The lowest rank of each process among `members`, which are ascending.
std::vector<int> processes_of(const Membership& membership, std::span<const int> members);

/// All ranks of a host come together at the lowest: each connects to it over an authenticated unix
/// socket of the same user and hands over its heap and its outbox; the lowest makes the segment and
/// gives every rank the segment, the heaps and pidfds of all processes, and the outboxes.
///
///     rank            lowest rank
///      | ── hello, heap, outbox ──▶ |  (from all)
///      | ◀─ segment, heaps, pidfds, outboxes ─ |     or why there is none
Result<ShmMeeting> meet(const ShmMeetingPlan& plan);

} // namespace whorl
