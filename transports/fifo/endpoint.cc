#include "transports/fifo/endpoint.h"

#include <algorithm>

namespace whorl {

/// Reads how many messages the peer has given back. False: the number is impossible.
bool FifoEndpoint::refresh() noexcept {
  const std::uint64_t released =
      head(ends_.send).released.load(std::memory_order_acquire); // pairs with release in release()
  if (released > sent_ || released < released_) {
    host_.corrupt(ends_.peer, "a count of released messages that was never sent");
    return false;
  }
  released_ = released;
  limit_ = prepared_ ? released + ends_.slots : 0;
  return true;
}

/// Takes note of a message that was written. Returns kTimed if the receiver is to time it, too.
std::uint64_t FifoEndpoint::filled(std::size_t bytes) noexcept {
  const bool timed = stores_.timed();
  stores_.filled(timed ? pace_of(sys().now_ns() - fill_began_ns_, bytes) : 0,
                 // Written before the counter that refresh() has read since.
                 stores_.wants_pace() ? head(ends_.send).pace.load(std::memory_order_relaxed) : 0);
  return timed ? kTimed : 0;
}

/// Takes note that a message is received, if it was timed, or ends a run of timed ones.
void FifoEndpoint::emptied(std::uint64_t flag) noexcept {
  const bool timed = (flag & (kTimed | kPublished)) == kTimed;
  if (timed) {
    const std::uint32_t pace =
        pace_of(sys().now_ns() - empty_began_ns_, std::max<std::size_t>((flag & ~kTimed) >> 32, 1));
    std::atomic<std::uint32_t>& best = head(ends_.receive).pace;
    if (!emptied_timed_ || pace < best.load(std::memory_order_relaxed)) {
      best.store(pace, std::memory_order_relaxed); // released before the counter in release()
    }
  }
  emptied_timed_ = timed;
}

bool FifoEndpoint::make_room() noexcept {
  if (!prepared_) {
    if (!host_.prepare(ends_.peer, ends_.send)) return false;
    prepared_ = true;
  }
  const bool room = refresh() && sent_ < limit_;
  if (!room) stuck_sending_.store(true, std::memory_order_relaxed);
  return room;
}

Message FifoEndpoint::peek_published(SlotHeader& header) noexcept {
  // Copied once: the peer could change it after the check.
  Descriptor descriptor;
  std::memcpy(&descriptor, &header.small, sizeof descriptor);
  const std::byte* const data = host_.resolve(ends_.peer, descriptor);
  if (data == nullptr) return refuse("a descriptor of memory that it does not share");
  return {data, descriptor.bytes, header.fingerprint};
}

Message FifoEndpoint::refuse(const char* what) noexcept {
  host_.corrupt(ends_.peer, what);
  return {};
}

} // namespace whorl
