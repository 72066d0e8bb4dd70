#pragma once

#include <atomic>
#include <cstring>

#include "base/system.h"
#include "transports/endpoint.h"
#include "transports/fifo/layout.h"
#include "transports/fifo/store_policy.h"

namespace whorl {

/// Functions that endpoints need from the transport that owns them, off the fast path. Any thread.
class FifoHost {
 public:
  virtual ~FifoHost() = default;
  /// Backs the FIFO to `peer` with memory before its first use. Returns false if the error was set.
  virtual bool prepare(int peer, std::byte* fifo) noexcept = 0;
  /// Returns whether peers can read and write `memory` in place, and writes its Descriptor::offset
  /// to `*offset`.
  virtual bool locate(std::span<const std::byte> memory, std::uint64_t* offset) noexcept = 0;
  /// Returns the memory that a descriptor of `peer` names, or null if it names none. May enter the
  /// kernel.
  virtual std::byte* resolve(int peer, const Descriptor& descriptor) noexcept = 0;
  /// Sets the error: `peer` wrote invalid data into the shared memory.
  virtual void corrupt(int peer, const char* what) noexcept = 0;
};

/// Wakes the owner of a doorbell if it sleeps. The check is relaxed, so that a message costs no
/// fence: a rank that goes to sleep at this very moment may be missed and then wakes at the end of
/// its sleep (WaitPolicy::block_ns).
inline void ring_doorbell(Doorbell& bell) noexcept {
  if (bell.sleeping.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
  if (bell.sleeping.exchange(0, std::memory_order_acq_rel) == 0) return; // another rank rings
  bell.rings.fetch_add(1, std::memory_order_release); // pairs with acquire in FifoTransport::sleep
  sys().futex_wake(&bell.rings);
}

/// Endpoint over two FIFOs in memory that both ranks map, see layout.h. commit(),
/// try_send_descriptor() and release() enter the kernel only to wake a peer that sleeps; try_peek()
/// and try_put() only to map a part of the peer's heap that no descriptor has named before;
/// try_reserve() once, to get the memory.
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
    RankState* own = nullptr;
    RankState* peers = nullptr;
    bool zero_copy = false; ///< true: try_send_descriptor() and expose_recv_buffer() may succeed
  };
  FifoEndpoint(const Ends& ends, FifoHost& host) noexcept
      : Endpoint({.recv_buffers_ahead = kRecvBuffersAhead}),
        ends_(ends),
        host_(host),
        stride_(slot_stride(ends.slot_bytes)),
        mask_(ring_slots(ends.slots) - 1),
        stores_(ends.slots),
        send_slot_(slot(ends.send, 0)),
        receive_slot_(slot(ends.receive, 0)) {}

  std::span<std::byte> try_reserve(std::size_t bytes = kWholeSlot) noexcept override {
    if (sent_ == limit_ && !make_room()) return {};
    small_ = bytes <= kSmallBytes;
    if (small_) return send_slot_->small;
    if (bytes >= kMinNontemporalBytes && stores_.timed()) fill_began_ns_ = sys().now_ns();
    return {payload(send_slot_), ends_.slot_bytes};
  }

  StoreHint store_hint() const noexcept override {
    return {.nontemporal = stores_.nontemporal(), .on_trial = stores_.on_trial()};
  }

  void commit(std::size_t bytes, const Fingerprint& fingerprint) noexcept override {
    std::uint64_t word = putting_ ? kPublished | kPut : std::uint64_t{bytes} << 32;
    if (putting_) stop_touching(putting_);
    if (bytes <= kSmallBytes) {
      if (!small_) std::memcpy(&send_slot_->small, payload(send_slot_), kSmallBytes);
    } else if (bytes >= kMinNontemporalBytes) {
      word |= filled(bytes);
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
      return {};
    }
    if ((flag & kPublished) != 0) return peek_elsewhere(header, flag);
    const std::size_t bytes = (flag & ~kTimed) >> 32;
    if (bytes > ends_.slot_bytes) [[unlikely]]
      return refuse("a message larger than a slot");
    if ((flag & kTimed) != 0) [[unlikely]]
      empty_began_ns_ = sys().now_ns();
    return {bytes <= kSmallBytes ? header.small.data() : payload(receive_slot_), bytes,
            header.fingerprint};
  }

  void release() noexcept override {
    if (reading_) stop_touching(reading_);
    if (const std::uint64_t flag = receive_slot_->flag.load(std::memory_order_relaxed);
        (flag & kTimed) != 0 || emptied_timed_) [[unlikely]] {
      emptied(flag);
    }
    ++received_;
    // Pairs with acquire in refresh(): the peer may overwrite the slot or the published source.
    head(ends_.receive).released.store(received_, std::memory_order_release);
    expected_ = static_cast<std::uint32_t>(received_ + 1);
    receive_slot_ = slot(ends_.receive, received_);
    ring_doorbell(ends_.peers->doorbell);
  }

  int peer() const noexcept { return ends_.peer; }
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

  void send(std::uint64_t word, const Fingerprint& fingerprint) noexcept {
    send_slot_->fingerprint = fingerprint;
    ++sent_;
    // Pairs with acquire in try_peek(): payload, descriptor and fingerprint come first.
    send_slot_->flag.store(word | static_cast<std::uint32_t>(sent_), std::memory_order_release);
    send_slot_ = slot(ends_.send, sent_);
    ring_doorbell(ends_.peers->doorbell);
  }

  bool touch_memory_of_peer(bool& touching) noexcept;
  void stop_touching(bool& touching) noexcept {
    touching = false;
    // Pairs with acquire in FifoTransport::revoke_access().
    ends_.own->touching.fetch_sub(1, std::memory_order_release);
  }
  std::uint64_t filled(std::size_t bytes) noexcept;
  void emptied(std::uint64_t flag) noexcept;
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
  StorePolicy stores_;
  std::uint64_t fill_began_ns_ = 0;  ///< time at which a timed message was begun
  bool small_ = false;               ///< whether try_reserve() gave SlotHeader::small
  bool putting_ = false;             ///< whether try_put() gave a buffer of the peer
  SlotHeader* send_slot_;            ///< slot of message sent_ + 1
  std::uint64_t limit_ = 0;          ///< largest value of sent_; 0 until prepare()
  std::uint64_t released_ = 0;       ///< the peer's counter at the last refresh()
  std::uint64_t last_published_ = 0; ///< number of the last message without a copy
  bool prepared_ = false;

  // Receiving.
  SlotHeader* receive_slot_;   ///< slot of message received_ + 1
  std::uint32_t expected_ = 1; ///< low half of the flag of the next message
  bool reading_ = false;       ///< true: try_peek() returned memory of the peer
  std::array<Exposed, kRecvBuffersAhead> exposed_{};
  std::uint64_t empty_began_ns_ = 0; ///< time of the last try_peek() of a timed message
  bool emptied_timed_ = false;       ///< true: the previous message was timed

  // Set by the owner, taken by was_stuck(); they carry no other data.
  std::atomic<bool> stuck_sending_{false};
  std::atomic<bool> stuck_receiving_{false};
};

} // namespace whorl
