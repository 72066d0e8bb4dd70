#include "transports/fifo/endpoint.h"

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
