#include "transports/fifo/endpoint.h"

#include <utility>

namespace whorl {
namespace {

/// Reads one byte of each cache line.
void touch(std::span<const std::byte> memory) noexcept {
  constexpr std::size_t kLine = 64;
  std::byte seen{};
  for (std::size_t i = 0; i < memory.size(); i += kLine) seen ^= memory[i];
  static_cast<void>(*static_cast<volatile std::byte*>(&seen));
}

} // namespace

/// Reads how many messages the peer has released. Returns false if the number is impossible.
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

/// Updates stores_ after a message was written. Returns the time if the receiver is to time the
/// message, too, and 0 otherwise.
std::uint64_t FifoEndpoint::filled(std::size_t bytes) noexcept {
  const std::size_t size = store_class(bytes);
  StorePolicy& stores = stores_[size];
  const std::uint64_t now = stores.timed() ? sys().now_ns() : 0;
  stores.filled(
      now != 0 ? pace_of(now - fill_began_ns_, bytes) : 0,
      // Written before the counter that refresh() has read since.
      stores.wants_pace() ? head(ends_.send).pace[size].load(std::memory_order_relaxed) : 0);
  return now;
}

/// Takes the time at which a timed message was found.
void FifoEndpoint::note_arrival() noexcept {
  empty_began_ns_ = sys().now_ns();
  if (arrived_ns_ == 0) arrived_ns_ = empty_began_ns_;
}

/// Counts a message that was received and is not short, and updates the pace if it was timed.
void FifoEndpoint::emptied(std::uint64_t flag) noexcept {
  const std::uint64_t arrived_ns = std::exchange(arrived_ns_, 0);
  const bool timed = (flag & kTimed) != 0;
  if ((flag & kPublished) == 0) {
    const std::size_t bytes = (flag & ~kTimed) >> 32;
    *ends_.moved += bytes;
    if (timed) {
      update_pace(bytes, arrived_ns);
    } else {
      emptied_timed_[store_class(bytes)] = false;
    }
  } else if (!timed) {
    emptied_timed_ = {};
  } else if (const Exposed& exposed = exposed_[(received_ + 1) % kRecvBuffersAhead];
             exposed.number == received_ + 1) { // otherwise the peer has changed the flag since
    // The payload was not copied: reading it shows what reading costs the user.
    empty_began_ns_ = sys().now_ns();
    touch(exposed.memory);
    update_pace(exposed.memory.size(), arrived_ns);
  }
}

/// Updates the pace with a message that arrived at `arrived_ns` and has been read: by the time from
/// when its payload was written, but for what this side had to do first.
void FifoEndpoint::update_pace(std::size_t bytes, std::uint64_t arrived_ns) noexcept {
  if (arrived_ns == 0 || bytes < kMinNontemporalBytes) return; // the peer's flag has changed since
  std::uint64_t time = sys().now_ns() - empty_began_ns_;
  Placement placement;
  std::memcpy(&placement, &receive_slot_->small, sizeof placement);
  // Stores that bypass the caches delay the flag behind them. If this side did not wait for it,
  // that costs nothing.
  if (waiting_ && arrived_ns > placement.filled_ns) time += arrived_ns - placement.filled_ns;
  const std::size_t size = store_class(bytes);
  const std::uint32_t pace = pace_of(time, bytes);
  std::atomic<std::uint32_t>& best = head(ends_.receive).pace[size];
  if (!emptied_timed_[size] || pace < best.load(std::memory_order_relaxed)) {
    best.store(pace, std::memory_order_relaxed); // released before the counter in release()
  }
  emptied_timed_[size] = true;
}

bool FifoEndpoint::make_room() noexcept {
  if (!prepared_) {
    if (!host_.back(ends_.peer, {ends_.send, ends_.shape->slots_size}, true)) return false;
    prepared_ = true;
  }
  const bool room = refresh() && sent_ < limit_;
  if (!room) stuck_sending_.store(true, std::memory_order_relaxed);
  return room;
}

/// Counts an access of this side to memory of the peer. Returns false, and counts nothing, if the
/// peer has revoked its memory. At least one side sees the store of the other, because both store
/// first, then load, all sequentially consistent.
bool FifoEndpoint::touch_memory_of_peer(bool& touching) noexcept {
  ends_.own->touching.fetch_add(1, std::memory_order_seq_cst);
  touching = true;
  if (ends_.peers->revoked.load(std::memory_order_seq_cst) == 0) [[likely]]
    return true;
  stop_touching(touching);
  return false;
}

std::span<std::byte> FifoEndpoint::find_exposed_buffer(std::size_t bytes,
                                                       const Fingerprint& fingerprint) noexcept {
  if (sent_ == limit_ && !make_room()) return {};
  const std::uint64_t number = sent_ + 1;
  ExposedBuffer& buffer = head(ends_.send).exposed[number % kRecvBuffersAhead];
  // Pairs with release in expose_recv_buffer().
  if (buffer.number.load(std::memory_order_acquire) != number) return {};
  const Descriptor memory = buffer.memory;
  if (memory.bytes != bytes || !(buffer.expected == fingerprint)) return {};
  std::byte* const data = host_.resolve(ends_.peer, memory);
  if (data == nullptr) {
    refuse("a receive buffer that it does not share");
    return {};
  }
  if (!touch_memory_of_peer(putting_)) return {};
  note_fill(bytes);
  return {data, bytes};
}

bool FifoEndpoint::expose_recv_buffer(std::uint64_t number, std::span<std::byte> destination,
                                      const Fingerprint& expected) noexcept {
  Descriptor memory{.offset = 0, .bytes = destination.size()};
  // The sender backs a FIFO with memory before its first message.
  if (!ends_.zero_copy || received_ == 0 || number - received_ > kRecvBuffersAhead ||
      destination.size() < kMinSharedBytes || !host_.locate(destination, &memory.offset)) {
    return false;
  }
  exposed_[number % kRecvBuffersAhead] = {number, destination};
  ExposedBuffer& buffer = head(ends_.receive).exposed[number % kRecvBuffersAhead];
  buffer.memory = memory;
  buffer.expected = expected;
  // Pairs with acquire in find_exposed_buffer().
  buffer.number.store(number, std::memory_order_release);
  return true;
}

/// Returns a message whose payload is not in its slot: published by the sender, or in the
/// exposed buffer.
Message FifoEndpoint::peek_elsewhere(SlotHeader& header, std::uint64_t flag) noexcept {
  if ((flag & kPut) != 0) {
    const Exposed& exposed = exposed_[(received_ + 1) % kRecvBuffersAhead];
    if (exposed.number != received_ + 1) return refuse("that it used a buffer never exposed");
    return {exposed.memory.data(), exposed.memory.size(), header.fingerprint};
  }
  // Copied once: the peer could change it after the check.
  Descriptor descriptor;
  std::memcpy(&descriptor, &header.small, sizeof descriptor);
  const std::byte* const data = host_.resolve(ends_.peer, descriptor);
  if (data == nullptr) return refuse("a descriptor of memory that it does not share");
  if (!reading_ && !touch_memory_of_peer(reading_)) return {};
  return {data, descriptor.bytes, header.fingerprint};
}

Message FifoEndpoint::refuse(const char* what) noexcept {
  host_.corrupt(ends_.peer, what);
  return {};
}

} // namespace whorl
