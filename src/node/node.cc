#include "node/node.h"

#include <utility>

#include "base/bytes.h"
#include "node/board.h"

namespace whorl {

Result<ShmMeeting> Node::meet(ShmMeetingPlan plan) {
  const Membership& membership = *plan.membership;
  const std::size_t board = round_up(
      board_bytes_for(plan.members.size(), membership.shares_devices()), sys().page_bytes());
  const SegmentPlan transport = std::exchange(plan.segment, {});
  plan.segment = {
      .bytes = board + transport.bytes,
      .backed_bytes = board + transport.backed_bytes,
      .stamp = [&](std::byte* segment) { transport.stamp(segment + board); },
      .check = [&](const std::byte* segment) { return transport.check(segment + board); }};
  FdChannelEnds ends;
  if (membership.shares_devices() && membership.rank == kDeviceLeader) {
    ends = FdChannelEnds::make();
  }
  plan.outbox_fd = ends.outbox.get();
  auto meeting = whorl::meet(plan);
  if (!meeting.ok()) return meeting;
  fd_channel_ = FdChannel(std::move(ends.inbox), std::move(meeting->outbox));
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
