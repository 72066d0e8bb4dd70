#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "transports/endpoint.h"
#include "transports/verbs/queue.h"
#include "transports/verbs/wire.h"

namespace whorl {

/// Judge of endpoints whose connection has failed or whose peer writes nonsense: the transport.
class VerbsJudge {
 public:
  virtual ~VerbsJudge() = default;
  /// Handles that the connection to `peer` has failed. Sets the error and returns kFailed; or
  /// returns kIdle while a better explanation may still arrive, or where the peer has left in good
  /// order. Any thread.
  virtual Progress connection_failed(int peer, const VerbsQueue& queue) noexcept = 0;
  /// Returns whether `peer` has left in good order. Any thread.
  virtual bool has_left(int peer) noexcept = 0;
  /// Sets the error: `peer` has sent something other than a message.
  virtual void malformed(int peer, const char* what) noexcept = 0;
};

/// Endpoint over memory that both devices reach, see verbs::EndpointLayout.
///
/// Sending. A message is filled in at this side and written to the peer's memory by one request:
/// the line with number, size and fingerprint, and the payload behind it. A small payload is in the
/// line. The device carries out the requests by itself; commit() and release() enter the kernel
/// only with devices in software.
///
/// A source in the heap is written from where it is, and is needed until the device has done so.
///
/// Receiving. try_peek() polls the next line in this side's memory, where the message is used in
/// place; a payload behind it is there as a whole once the device has reported the write's notice.
/// release() counts, and writes the count to the peer after every few messages. A buffer in the
/// heap is offered to the peer, which then writes the payload of the message there.
///
/// A place of the ring is filled again only after the peer has released its message, which has then
/// arrived as a whole. So no completion is needed to know that the memory of a message is free, and
/// only some requests ask for one, by which the room in the queue is known.
class VerbsEndpoint final : public Endpoint, private VerbsReceiver {
 public:
  /// Makes an endpoint over `memory`, which starts at a page and has the local key `key`; all
  /// arguments outlive the endpoint.
  VerbsEndpoint(int peer, const verbs::EndpointLayout& layout, std::byte* memory, std::uint32_t key,
                VerbsRegions& regions, VerbsQueue& queue, VerbsCompletions& completions,
                VerbsJudge& judge)
      : Endpoint({.recv_buffers_ahead = verbs::kOffers}),
        peer_(peer),
        layout_(layout),
        memory_(memory),
        key_(key),
        regions_(regions),
        queue_(queue),
        completions_(completions),
        judge_(judge),
        requests_(layout.places()),
        noticed_(layout.places()) {}

  /// Connects to the peer's endpoint, before the first message. Returns 0 or −errno.
  int connect(const verbs::EndpointAddress& own, const verbs::EndpointAddress& remote,
              const verbs::PortAddress& peer, const VerbsPort& port,
              const VerbsSettings& settings) noexcept {
    remote_ = remote.memory;
    remote_key_ = remote.key;
    return queue_.connect(*this, own, remote, peer, port, settings);
  }

  std::span<std::byte> try_reserve(std::size_t bytes = kWholeSlot) noexcept override;
  void commit(std::size_t bytes, const Fingerprint& fingerprint) noexcept override;
  bool can_send_descriptor(std::span<const std::byte> source) const noexcept override {
    return source.size() >= kMinSharedBytes && source.size() <= layout_.slot_bytes() &&
           source_.find(regions_, source);
  }
  DescriptorSend try_send_descriptor(std::span<const std::byte> source,
                                     const Fingerprint& fingerprint) noexcept override;
  std::uint64_t released() noexcept override;

  bool expose_recv_buffer(std::uint64_t number, std::span<std::byte> destination,
                          const Fingerprint& expected) noexcept override;
  Message try_peek() noexcept override;
  void release() noexcept override;
  /// Returns whether all messages are in the peer's memory, or the peer has left.
  bool flushed() noexcept override;
  Progress progress() noexcept override;

  /// Returns whether an attempt to use this endpoint has had to wait for the peer since the last
  /// call. Any thread.
  bool was_stuck() noexcept { return stuck_.exchange(false, std::memory_order_relaxed); }

  /// Returns the number of requests that must fit into the queue of an endpoint. Sends: all
  /// messages that are not released, credits and offers. Receives: the notices of twice as many,
  /// since credits for messages may be given before their notices are looked at.
  static VerbsQueue::Depth queue_depth(const verbs::EndpointLayout& layout) noexcept {
    const auto depth = static_cast<std::uint32_t>(2 * layout.places()) + kSpareRequests;
    return {.sends = depth + static_cast<std::uint32_t>(verbs::kOffers), .receives = depth};
  }

 private:
  static constexpr std::uint32_t kSpareRequests = 16;
  /// Number of calls of progress() for each look at the completions, which say little: that there
  /// is room in the queue again, or that it has failed.
  static constexpr std::uint32_t kCallsPerPoll = 16;

  template <class T>
  T& at(std::size_t offset) const noexcept {
    return *reinterpret_cast<T*>(memory_ + offset);
  }
  /// Own offer of a buffer.
  struct Offered {
    std::uint64_t number = 0;
    std::span<std::byte> memory;
    Fingerprint expected;
  };
  /// Message of which the device has reported that it is there as a whole.
  struct Noticed {
    std::uint64_t number = 0;
    bool placed = false;
  };

  void take(verbs::Notice notice) noexcept override;
  const Noticed* find_notice(std::uint64_t number) const noexcept {
    const Noticed& last = noticed_[number % noticed_.size()];
    return last.number == number ? &last : nullptr;
  }
  /// Returns the notice of a message, also if the device reports it only now.
  const Noticed* poll_notice(std::uint64_t number) noexcept {
    if (const Noticed* const known = find_notice(number)) return known;
    completions_.poll();
    return find_notice(number);
  }
  bool may_send() noexcept;
  void send(const VerbsPiece& payload, const Fingerprint& fingerprint, bool completion) noexcept;
  bool find_offer(std::uint32_t bytes, const Fingerprint& fingerprint,
                  verbs::Offer* offer) const noexcept;
  bool refresh() noexcept;
  void give_credit() noexcept;
  void malformed(const char* what) noexcept;

  const int peer_;
  const verbs::EndpointLayout layout_;
  std::byte* const memory_;
  const std::uint32_t key_;
  std::uint64_t remote_ = 0; ///< address of the peer's memory
  std::uint32_t remote_key_ = 0;
  VerbsRegions& regions_;
  VerbsQueue& queue_;
  VerbsCompletions& completions_;
  VerbsJudge& judge_;

  std::uint64_t released_ = 0; ///< number of messages that the peer has released
  mutable LastRegion source_;
  std::vector<std::uint64_t> requests_; ///< number of the request of each message, by place
  std::uint64_t last_request_ = 0;      ///< number of the last request of a message
  std::uint64_t last_described_ = 0;    ///< number of the last message sent from the heap
  std::uint64_t written_ = 0;           ///< number of messages known to be in the peer's memory
  LastRegion target_;
  std::array<Offered, verbs::kOffers> offered_;
  std::vector<Noticed> noticed_; ///< messages noticed last, by place
  std::uint64_t credited_ = 0;   ///< number of released messages of which the peer knows
  std::uint32_t calls_ = 0;
  bool refused_ = false; ///< true: the peer has written nonsense
  std::atomic<bool> stuck_{
      false}; ///< set by the owner, taken by was_stuck(); carries no other data
};

} // namespace whorl
