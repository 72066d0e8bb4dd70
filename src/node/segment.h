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

/// A descriptor of one process, with the lowest rank of the process, or of one rank.
struct ProcessFd {
  int rank = 0;
  Fd fd;
};

/// Segment and descriptors that a rank holds once the ranks of its host have met.
struct ShmMeeting {
  ShmSegment segment;
  std::vector<ProcessFd> heaps;  ///< heaps of the other processes that have one
  std::vector<ProcessFd> pidfds; ///< pidfds of other processes, where the kernel has them
  Fd outbox; ///< outbox of the lowest rank (see FdChannel), if it made one in another process
  /// Open connections between the lowest rank and others, where one end has no pidfd for the other.
  std::vector<ProcessFd> sockets;
};

/// The memory that the lowest rank makes and all others map.
struct SegmentPlan {
  std::size_t bytes = 0;
  std::size_t backed_bytes = 0; ///< number of first bytes that have memory from the start
  std::function<void(std::byte* segment)> stamp;         ///< function that writes the header
  std::function<Status(const std::byte* segment)> check; ///< function that compares the header
};

/// Input of a rank to meet(). Node::meet() adds the parts that belong to no transport.
struct ShmMeetingPlan {
  const Membership* membership = nullptr;
  std::vector<int> members; ///< ranks of this host, ascending; with this rank
  SegmentPlan segment;
  std::size_t index = 0; ///< index of the transport in PeerInfo::addresses
  const Fd* listener = nullptr;
  int heap_fd = -1;   ///< heap of this process; −1: none
  int outbox_fd = -1; ///< end to which others write for the FdChannel of the lowest rank; −1: none
  std::uint64_t deadline_ns = 0;
};

/// Maximum number of processes of a host where each process has descriptors of all others: of their
/// heaps, and pidfds to watch them. With more processes, all messages are copied through slots, and
/// each process watches the first one and those at a distance of a power of two in the order of
/// ranks; a process that finds another one dead notifies all.
inline constexpr std::size_t kMaxProcesses = 128;

/// Returns the lowest rank of each process among `members`, which are ascending.
std::vector<int> processes_of(const Membership& membership, std::span<const int> members);

/// Meets all ranks of a host at the lowest rank: each rank connects to the lowest over an
/// authenticated unix socket of the same user and hands over its heap; the lowest rank makes the
/// segment and sends every rank the segment, the heaps and pidfds of all processes, and its outbox.
///
///     rank            lowest rank
///      | ── hello, heap ──▶ |  (from all)
///      | ◀─ segment, heaps, pidfds, outbox ─ |     or the error of the lowest rank
Result<ShmMeeting> meet(const ShmMeetingPlan& plan);

} // namespace whorl
