#include "node/node.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "node/board.h"

namespace whorl {
namespace {

constexpr std::size_t kPageBytes = 4096;
/// Maximum number of ends of channels in a process for one communicator. A usual limit is 1024
/// descriptors for each process, so more ends would soon use up the limit.
constexpr std::size_t kMaxChannelEnds = 128;

/// Returns the maximum number of ends of channels in a process: each rank of a process has an
/// inbox, and the outboxes of all ranks in other processes.
std::size_t max_channel_ends(const Membership& membership) {
  std::size_t most = 0;
  for (int rank = 0; rank < membership.nranks; ++rank) {
    const auto here = static_cast<std::size_t>(membership.ranks_in_process_of(rank));
    most = std::max(most, here * (membership.peers.size() - here + 1));
  }
  return most;
}

} // namespace

Result<ShmMeeting> Node::meet(ShmMeetingPlan plan) {
  const Membership& membership = *plan.membership;
  const std::size_t board = round_up(board_bytes_for(plan.members.size()), kPageBytes);
  const SegmentPlan transport = std::exchange(plan.segment, {});
  plan.segment = {
      .bytes = board + transport.bytes,
      .backed_bytes = board + transport.backed_bytes,
      .stamp = [&](std::byte* segment) { transport.stamp(segment + board); },
      .check = [&](const std::byte* segment) { return transport.check(segment + board); }};
  FdChannelEnds ends;
  if (membership.shares_devices() && max_channel_ends(membership) <= kMaxChannelEnds) {
    ends = FdChannelEnds::make();
  }
  plan.outbox_fd = ends.outbox.get();
  auto meeting = whorl::meet(plan);
  if (!meeting.ok()) return meeting;
  std::vector<Fd> outboxes(static_cast<std::size_t>(membership.nranks));
  for (ProcessFd& box : meeting->outboxes) {
    outboxes[static_cast<std::size_t>(box.rank)] = std::move(box.fd);
  }
  meeting->outboxes.clear();
  fd_channel_ = FdChannel(std::move(ends.inbox), std::move(outboxes));
  segment_ = std::move(meeting->segment);
  board_bytes_ = board;
  return meeting;
}

std::span<std::byte> Node::board() const noexcept { return {segment_.data(), board_bytes_}; }

std::span<std::byte> Node::transport_memory() const noexcept {
  return {segment_.data() + board_bytes_, segment_.size() - board_bytes_};
}

int Node::allocate(std::span<const std::byte> memory) noexcept {
  return segment_.allocate(static_cast<std::size_t>(memory.data() - segment_.data()),
                           memory.size());
}

} // namespace whorl
