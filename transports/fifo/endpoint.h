#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>

#include "base/system.h"
#include "transports/endpoint.h"
#include "transports/fifo/host.h"
#include "transports/fifo/layout.h"
#include "transports/fifo/ring.h"
#include "transports/fifo/store_policy.h"

namespace whorl {

/// Wakes the owner of a doorbell if it sleeps. The check is relaxed, so that a message costs no
/// fence: a rank that goes to sleep at this very moment may be missed and then wakes at the end of
/// its sleep (WaitPolicy::block_ns).
inline void ring_doorbell(Doorbell& bell) noexcept {
  if (bell.sleeping.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
  if (bell.sleeping.exchange(0, std::memory_order_acq_rel) == 0) return; // another rank rings
  bell.rings.fetch_add(1, std::memory_order_release); // pairs with FifoTransport::block()
  sys().futex_wake(&bell.rings);
}

/// Endpoint over two FIFOs in memory that both ranks map, see layout.h. Calls enter the kernel only
/// to wake a peer that sleeps, to map a part of the peer's heap that no descriptor has named
/// before, and, a few times, to get memory for the FIFO.
///
/// A rank counts its accesses to a source that the peer has published or a buffer that the peer
/// has exposed, so that after a failure the peer can tell when its memory is no longer accessed:
///
///     peer:  touching += 1 ▶ revoked? ▶ read or write ▶ touching −= 1
///     owner: revoked = 1 ▶ until touching is 0
class FifoEndpoint final : public Endpoint {
 public:
  struct Ends {
    int peer = 0;
    std::byte* send = nullptr;    ///< FIFO from this rank to the peer
    std::byte* receive = nullptr; ///< FIFO from the peer to this rank
    std::uint32_t slots = 0;
    std::size_t slot_bytes = 0;
    const FifoShape* shape = nullptr; ///< shape of both FIFOs, which outlives the endpoint
    RankState* own = nullptr;
    RankState* peers = nullptr;
    std::uint64_t* moved = nullptr; ///< count of PayloadRing::Place
    bool only_peer = false;         ///< whether the transport has no other peer
    bool zero_copy = false; ///< true: try_send_descriptor() and expose_recv_buffer() may succeed
  };
  FifoEndpoint(const Ends& ends, FifoHost& host) noexcept
      : Endpoint({.recv_buffers_ahead = kRecvBuffersAhead}),
        ends_(ends),
        host_(host),
        stride_(ends.shape->stride),
        mask_(ends.shape->positions - 1),
        ring_({.peer = ends.peer,
               .fifo = ends.send,
               .shape = ends.shape,
               .slot_bytes = ends.slot_bytes,
               .moved = ends.moved,
               .only_peer = ends.only_peer},
              host),
        stores_{StorePolicy(ends.slots), StorePolicy(ends.slots)},
        send_slot_(slot(ends.send, 0)),
        receive_slot_(slot(ends.receive, 0)) {}

  std::span<std::byte> try_reserve(std::size_t bytes = kWholeSlot) noexcept override {
    if (sent_ == limit_ && !make_room()) return {};
    small_ = bytes <= kSmallBytes;
    if (small_) return send_slot_->small;
    note_fill(bytes);
    const FifoShape& shape = *ends_.shape;
    if (bytes <= shape.in_slot_bytes || shape.shortest_lap == 0) {
      reserved_ = payload(send_slot_);
      return {reserved_, shape.in_slot_bytes};
    }
    reserved_ = ring_.next();
    if (reserved_ == nullptr) [[unlikely]]
      return {};
    return {reserved_, ends_.slot_bytes};
  }

  StoreHint store_hint(std::size_t bytes) const noexcept override {
    const StorePolicy& stores = stores_[store_class(bytes)];
    return {.nontemporal = stores.nontemporal(), .on_trial = stores.on_trial()};
  }

  void commit(std::size_t bytes, const Fingerprint& fingerprint) noexcept override {
    Placement placement{.offset = 0, .filled_ns = 0, .in_cache = 0};
    if (bytes >= kMinNontemporalBytes) {
      placement.in_cache = stores_[store_class(bytes)].nontemporal() ? 0 : 1;
      placement.filled_ns = filled(bytes);
    }
    std::uint64_t word = placement.filled_ns != 0 ? kTimed : 0;
    if (putting_) {
      stop_touching(putting_);
      count_zero_copy();
      word |= kPublished | kPut;
      place(placement);
    } else if (bytes > kSmallBytes) {
      word |= std::uint64_t{bytes} << 32;
      placement.offset = static_cast<std::uint64_t>(reserved_ - ends_.send);
      place(placement);
      if (placement.offset >= ends_.shape->slots_size) ring_.take(bytes);
    } else {
      word |= std::uint64_t{bytes} << 32;
      if (!small_) std::memcpy(&send_slot_->small, reserved_, kSmallBytes);
    }
    send(word, fingerprint);
  }

  std::span<std::byte> try_put(std::size_t bytes,
                               const Fingerprint& fingerprint) noexcept override {
    if (!ends_.zero_copy || bytes < kMinSharedBytes) return {};
    return find_exposed_buffer(bytes, fingerprint);
  }

  bool can_send_descriptor(std::span<const std::byte> source) const noexcept override {
    std::uint64_t offset = 0;
    return ends_.zero_copy && source.size() >= kMinSharedBytes && host_.locate(source, &offset);
  }

  DescriptorSend try_send_descriptor(std::span<const std::byte> source,
                                     const Fingerprint& fingerprint) noexcept override {
    Descriptor descriptor{.offset = 0, .bytes = source.size()};
    if (!ends_.zero_copy || source.size() < kMinSharedBytes ||
        !host_.locate(source, &descriptor.offset)) {
      return DescriptorSend::kUnreachable;
    }
    if (sent_ == limit_ && !make_room()) return DescriptorSend::kBusy;
    std::memcpy(&send_slot_->small, &descriptor, sizeof descriptor);
    send(kPublished, fingerprint);
    count_zero_copy();
    last_published_ = sent_;
    return DescriptorSend::kSent;
  }

  std::uint64_t released() noexcept override {
    // Only published messages still need their source, and slots are given back in order.
    if (last_published_ <= released_) return sent_;
    const bool known = refresh();
    if (last_published_ <= released_) return sent_;
    if (known) stuck_sending_.store(true, std::memory_order_relaxed);
    return released_;
  }

  bool expose_recv_buffer(std::uint64_t number, std::span<std::byte> destination,
                          const Fingerprint& expected) noexcept override;

  Message try_peek() noexcept override {
    SlotHeader& header = *receive_slot_;
    const std::uint64_t flag = header.flag.load(std::memory_order_acquire); // … release in send()
    if (static_cast<std::uint32_t>(flag) != expected_) {
      stuck_receiving_.store(true, std::memory_order_relaxed);
      waiting_ = true;
      return {};
    }
    if ((flag & kTimed) != 0) [[unlikely]]
      note_arrival();
    if ((flag & kPublished) != 0) return peek_elsewhere(header, flag);
    const std::size_t bytes = (flag & ~kTimed) >> 32;
    if (bytes > ends_.slot_bytes) [[unlikely]]
      return refuse("a message larger than a slot");
    if (bytes <= kSmallBytes) return {header.small.data(), bytes, header.fingerprint};
    return message_in_fifo(header, bytes);
  }

  void release() noexcept override {
    if (reading_) stop_touching(reading_);
    // Also true of messages whose payload is not in the FIFO.
    const std::uint64_t flag = receive_slot_->flag.load(std::memory_order_relaxed);
    if (flag >= std::uint64_t{kMinNontemporalBytes} << 32) emptied(flag);
    waiting_ = false;
    ++received_;
    // Pairs with acquire in refresh(): the peer may overwrite the slot or the published source.
    head(ends_.receive).released.store(received_, std::memory_order_release);
    expected_ = static_cast<std::uint32_t>(received_ + 1);
    receive_slot_ = slot(ends_.receive, received_);
    ring_doorbell(ends_.peers->doorbell);
  }

  bool has_ended() noexcept override {
    // Pairs with release in FifoTransport::leave(): all messages come first.
    return ends_.peers->left.load(std::memory_order_acquire) != 0 &&
           static_cast<std::uint32_t>(receive_slot_->flag.load(std::memory_order_acquire)) !=
               expected_;
  }

  int peer() const noexcept { return ends_.peer; }
  /// Returns the number of messages that were put or published. Any thread.
  std::uint64_t zero_copy_messages() const noexcept {
    return zero_copy_messages_.load(std::memory_order_relaxed);
  }
  /// Returns whether an attempt to use this endpoint has had to wait for the peer since the last
  /// call. Any thread.
  bool was_stuck() noexcept {
    const bool sending = stuck_sending_.exchange(false, std::memory_order_relaxed);
    return stuck_receiving_.exchange(false, std::memory_order_relaxed) || sending;
  }

 private:
  static constexpr std::uint64_t kPublished = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kTimed = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kPut = std::uint64_t{1} << 32; ///< flag used with kPublished
  struct Exposed {
    std::uint64_t number = 0;
    std::span<std::byte> memory;
  };

  static FifoHead& head(std::byte* fifo) noexcept { return *reinterpret_cast<FifoHead*>(fifo); }
  static std::byte* payload(SlotHeader* slot) noexcept {
    return reinterpret_cast<std::byte*>(slot + 1);
  }
  SlotHeader* slot(std::byte* fifo, std::uint64_t message) const noexcept {
    return reinterpret_cast<SlotHeader*>(fifo + sizeof(FifoHead) + (message & mask_) * stride_);
  }
  /// Returns a message whose payload is not in its header; none, with the error set, if the payload
  /// is not in the FIFO either.
  Message message_in_fifo(const SlotHeader& header, std::size_t bytes) noexcept {
    Placement placement;
    std::memcpy(&placement, &header.small, sizeof placement);
    const std::uint64_t offset = placement.offset;
    if (offset <= ends_.shape->size - bytes && offset % alignof(SlotHeader) == 0) [[likely]]
      return {ends_.receive + offset, bytes, header.fingerprint, placement.in_cache != 0};
    return refuse("a message outside of its FIFO");
  }

  /// Writes where the payload is. Field by field: copied as a whole, the structure was read with a
  /// load that was wider than the stores before it, and that waited until all earlier stores, those
  /// of the payload, had left the core.
  void place(const Placement& placement) noexcept {
    const auto put = [this](std::size_t at, std::uint64_t value) {
      std::memcpy(send_slot_->small.data() + at, &value, sizeof value);
    };
    put(offsetof(Placement, offset), placement.offset);
    put(offsetof(Placement, filled_ns), placement.filled_ns);
    put(offsetof(Placement, in_cache), placement.in_cache);
  }

  void send(std::uint64_t word, const Fingerprint& fingerprint) noexcept {
    send_slot_->fingerprint = fingerprint;
    ++sent_;
    // Pairs with acquire in try_peek(): payload, descriptor and fingerprint come first.
    send_slot_->flag.store(word | static_cast<std::uint32_t>(sent_), std::memory_order_release);
    send_slot_ = slot(ends_.send, sent_);
    ring_doorbell(ends_.peers->doorbell);
  }

  void count_zero_copy() noexcept {
    zero_copy_messages_.store(zero_copy_messages() + 1, std::memory_order_relaxed); // one writer
  }
  bool touch_memory_of_peer(bool& touching) noexcept;
  void stop_touching(bool& touching) noexcept {
    touching = false;
    // Pairs with acquire in FifoTransport::revoke_access().
    ends_.own->touching.fetch_sub(1, std::memory_order_release);
  }
  /// Notes the time if a message of `bytes`, which is about to be filled, is timed.
  void note_fill(std::size_t bytes) noexcept {
    if (bytes < kMinNontemporalBytes) return;
    const bool timed = bytes == kWholeSlot ? stores_[0].timed() || stores_[1].timed()
                                           : stores_[store_class(bytes)].timed();
    if (timed) [[unlikely]]
      fill_began_ns_ = sys().now_ns();
  }
  std::uint64_t filled(std::size_t bytes) noexcept;
  void note_arrival() noexcept;
  void emptied(std::uint64_t flag) noexcept;
  void update_pace(std::size_t bytes, std::uint64_t arrived_ns) noexcept;
  bool make_room() noexcept;
  bool refresh() noexcept;
  std::span<std::byte> find_exposed_buffer(std::size_t bytes,
                                           const Fingerprint& fingerprint) noexcept;
  Message peek_elsewhere(SlotHeader& header, std::uint64_t flag) noexcept;
  Message refuse(const char* what) noexcept;

  const Ends ends_;
  FifoHost& host_;
  const std::size_t stride_;
  const std::size_t mask_;

  // Sending.
  PayloadRing ring_;
  std::array<StorePolicy, kStoreClasses> stores_;
  std::uint64_t fill_began_ns_ = 0;  ///< time at which a timed message was begun
  bool small_ = false;               ///< whether try_reserve() gave SlotHeader::small
  bool putting_ = false;             ///< whether try_put() gave a buffer of the peer
  SlotHeader* send_slot_;            ///< slot of message sent_ + 1
  std::byte* reserved_ = nullptr;    ///< memory that try_reserve() gave, unless `small_`
  std::uint64_t limit_ = 0;          ///< largest value of sent_; 0 until the slots have memory
  std::uint64_t released_ = 0;       ///< the peer's counter at the last refresh()
  std::uint64_t last_published_ = 0; ///< number of the last message without a copy
  bool prepared_ = false;
  std::atomic<std::uint64_t> zero_copy_messages_{0}; ///< orders no other data

  // Receiving.
  SlotHeader* receive_slot_;   ///< slot of message received_ + 1
  std::uint32_t expected_ = 1; ///< low half of the flag of the next message
  bool reading_ = false;       ///< true: try_peek() returned memory of the peer
  std::array<Exposed, kRecvBuffersAhead> exposed_{};
  bool waiting_ = false;             ///< whether try_peek() has found no message since release()
  std::uint64_t arrived_ns_ = 0;     ///< time of the first try_peek() of a timed message; 0: none
  std::uint64_t empty_began_ns_ = 0; ///< time of the last one
  /// Whether the previous message of a store_class() was timed.
  std::array<bool, kStoreClasses> emptied_timed_{};

  // Set by the owner, taken by was_stuck(); they carry no other data.
  std::atomic<bool> stuck_sending_{false};
  std::atomic<bool> stuck_receiving_{false};
};

} // namespace whorl
