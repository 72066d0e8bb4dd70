#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "transports/endpoint.h"
#include "transports/verbs/queue.h"
#include "transports/verbs/rail_watch.h"
#include "transports/verbs/regions.h"
#include "transports/verbs/wire.h"

namespace whorl {

/// Judge of endpoints whose connection has failed or whose peer writes nonsense: the transport.
class VerbsJudge {
 public:
  virtual ~VerbsJudge() = default;
  /// Handles that the last connection to `peer` has failed. Sets the error and returns kFailed; or
  /// returns kIdle while a better explanation may still arrive, or where the peer has left in good
  /// order. Any thread.
  virtual Progress connection_failed(int peer, const VerbsQueue& queue) noexcept = 0;
  /// Tells the peer's endpoint that a rail has failed, while others are left.
  virtual void rail_failed(int peer, const verbs::RailReport& report,
                           const VerbsQueue& queue) noexcept = 0;
  /// Returns whether `peer` is known to have left in good order. Any thread.
  virtual bool has_left(int peer) noexcept = 0;
  /// Reads what peers have told of rails, for take_report(). Any thread.
  virtual void read_reports() noexcept = 0;
  /// Sets the error: `peer` has sent something other than a message.
  virtual void malformed(int peer, const char* what) noexcept = 0;
};

/// Rail of an endpoint: a connection by one port of each side. What it refers to outlives the
/// endpoint.
struct VerbsRail {
  enum class State : std::uint8_t {
    kAlive,
    kClosing, ///< closed on this side; the device still reports what has arrived
    kClosed,  ///< closed on this side, and the peer was told what has arrived
  };
  VerbsQueue* queue = nullptr;
  VerbsCompletions* completions = nullptr;
  VerbsRegions* regions = nullptr;
  std::uint32_t key = 0; ///< local key of the endpoint's memory
  bool spare = false;    ///< whether it is used only when all others have failed
  std::uint32_t remote_key = 0;

  State state = State::kAlive;
  bool closed_by_peer = false;    ///< whether the peer has told what has arrived there
  std::uint64_t last_request = 0; ///< number of the last request of a message
  LastRegion source, target;
};

/// Endpoint over memory that the devices of both sides reach, see verbs::EndpointLayout.
///
/// Sending. A message is filled in at this side and written to the peer's memory by one request:
/// the line with number, size and fingerprint, and the payload behind it. A small payload is in the
/// line. The device carries out the requests by itself; commit() and release() enter the kernel
/// only with devices in software. A source in the heap is written from where it is, and is needed
/// until the device has done so.
///
/// Receiving. try_peek() polls the next line in this side's memory, where the message is used in
/// place; a payload behind it is there as a whole once the device has reported the write's notice.
/// release() counts, and writes the count to the peer after every few messages. A buffer in the
/// heap is offered to the peer, which then writes the payload of the message there.
///
/// A place of the ring is filled again only after the peer has released its message, which has then
/// arrived as a whole. So no completion is needed to know that the memory of a message is free.
/// With one rail only some requests ask for one, by which the room in the queue is known; with
/// several each message does, since its sender may have to send it again.
///
/// Rails. Large messages take the rails in turn; their numbers tell the order. When a rail fails,
/// both sides close it, tell each other what has arrived there (failover.cc), and send the rest
/// again by another rail.
class VerbsEndpoint final : public Endpoint, private VerbsReceiver {
 public:
  /// Makes an endpoint with at least one rail over `memory`, which starts at a page; all arguments
  /// outlive the endpoint.
  VerbsEndpoint(int peer, std::size_t channel, const verbs::EndpointLayout& layout,
                std::byte* memory, std::vector<VerbsRail> rails, VerbsJudge& judge,
                RailWatch& watch);

  /// Tells where the peer's memory is.
  void set_remote(const verbs::EndpointAddress& remote) noexcept;
  /// Connects a rail to the peer's, before the first message. Returns 0 or −errno.
  int connect(std::size_t rail, const verbs::RailAddress& own, const verbs::RailAddress& remote,
              const verbs::PortAddress& peer, const VerbsPort& port,
              const VerbsSettings& settings) noexcept;
  /// Leaves out rails that cannot be connected on one of the sides: those without a bit in `mask`.
  void keep_rails(std::uint32_t mask) noexcept;

  std::span<std::byte> try_reserve(std::size_t bytes = kWholeSlot) noexcept override;
  void commit(std::size_t bytes, const Fingerprint& fingerprint) noexcept override;
  bool can_send_descriptor(std::span<const std::byte> source) const noexcept override {
    return source.size() >= kMinSharedBytes && source.size() <= layout_.slot_bytes() &&
           registered(&VerbsRail::source, source);
  }
  DescriptorSend try_send_descriptor(std::span<const std::byte> source,
                                     const Fingerprint& fingerprint) noexcept override;
  std::uint64_t released() noexcept override;

  bool expose_recv_buffer(std::uint64_t number, std::span<std::byte> destination,
                          const Fingerprint& expected) noexcept override;
  Message try_peek() noexcept override;
  bool has_ended() noexcept override { return judge_.has_left(peer_) && !find_message(); }
  void release() noexcept override;
  /// Returns whether all messages are in the peer's memory, or the peer has left.
  bool flushed() noexcept override;
  Progress progress() noexcept override;

  /// Returns whether an attempt to use this endpoint has had to wait for the peer since the last
  /// call. Any thread.
  bool was_stuck() noexcept { return stuck_.exchange(false, std::memory_order_relaxed); }
  /// Gives up a rail whose port has lost its link. Any thread.
  void suspect(std::size_t rail) noexcept {
    suspected_.fetch_or(std::uint32_t{1} << rail, std::memory_order_relaxed);
    watch_.raise();
  }
  /// Takes what the peer has told of a rail. Any thread.
  void take_report(const verbs::RailReport& report) noexcept;
  /// Handles failures of rails. Returns false if it has to be called again.
  bool settle_rails() noexcept;
  /// Ends all connections. Returns whether the devices have ended them, too. Called, until it
  /// returns true, when the endpoint is used no more.
  bool close() noexcept;

  /// Returns the number of requests that must fit into the queue of a rail. Sends: all messages
  /// that are not released, credits and offers. Receives: the notices of twice as many, since
  /// credits for messages may be given before their notices are looked at.
  static VerbsQueue::Depth queue_depth(const verbs::EndpointLayout& layout) noexcept {
    const auto depth = static_cast<std::uint32_t>(2 * layout.places()) + kSpareRequests;
    return {.sends = depth + static_cast<std::uint32_t>(verbs::kOffers), .receives = depth};
  }

 private:
  static constexpr std::uint32_t kSpareRequests = 16;
  /// Number of calls of progress() for each look at the completions, which say little: that there
  /// is room in the queue again, or that it has failed.
  static constexpr std::uint32_t kCallsPerPoll = 16;

  /// Message from when it is sent until the peer has released it.
  struct Sent {
    std::span<const std::byte> payload; ///< payload behind the line, or alone if it is placed
    bool placed = false;                ///< whether it goes to an offered buffer, without its line
    bool from_heap = false;
    std::uint64_t to = 0;                             ///< address of the offered buffer
    std::array<std::uint32_t, verbs::kMaxRails> keys; ///< keys of that buffer
    std::uint8_t rail = 0;
    std::uint64_t request =
        0; ///< number of its request at that rail; 0: it is known to have arrived
  };
  /// Own offer of a buffer.
  struct Offered {
    std::uint64_t number = 0;
    std::span<std::byte> memory;
    Fingerprint expected;
  };
  /// Message of which a device has reported that it is there as a whole.
  struct Noticed {
    std::uint64_t number = 0;
    bool placed = false;
  };

  template <class T>
  T& at(std::size_t offset) const noexcept {
    return *reinterpret_cast<T*>(memory_ + offset);
  }
  Sent& outgoing(std::uint64_t number) noexcept {
    return outgoing_[(number - 1) % outgoing_.size()];
  }
  const Noticed* find_notice(std::uint64_t number) const noexcept {
    const Noticed& last = noticed_[number % noticed_.size()];
    return last.number == number ? &last : nullptr;
  }

  // In endpoint.cc.
  Message find_message() noexcept;
  void take(verbs::Notice notice) noexcept override;
  void queue_failed() noexcept override { watch_.raise(); }
  const Noticed* poll_notice(std::uint64_t number) noexcept;
  void poll() noexcept;
  bool registered(LastRegion VerbsRail::*last, std::span<const std::byte> memory) const noexcept;
  bool has_small(std::uint64_t number) const noexcept;
  bool may_send() noexcept;
  void send(std::span<const std::byte> payload, bool from_heap,
            const Fingerprint& fingerprint) noexcept;
  std::size_t carrier_of(std::uint64_t number) noexcept;
  void post(std::uint64_t number) noexcept;
  bool find_offer(std::size_t bytes, const Fingerprint& fingerprint,
                  verbs::Offer* offer) const noexcept;
  bool is_written(const Sent& message) const noexcept;
  bool refresh() noexcept;
  void give_credit() noexcept;
  void malformed(const char* what) noexcept;

  // In failover.cc.
  Progress look_at_rails() noexcept;
  void choose_carriers() noexcept;
  void report(std::size_t rail) noexcept;
  void take_reports() noexcept;
  void send_again() noexcept;

  const int peer_;
  const std::size_t channel_;
  const verbs::EndpointLayout layout_;
  std::byte* const memory_;
  std::uint64_t remote_ = 0; ///< address of the peer's memory
  VerbsJudge& judge_;
  RailWatch& watch_;
  mutable std::vector<VerbsRail> rails_;
  std::vector<std::uint8_t> carriers_; ///< rails in use; the first one has all but large messages

  // Sending.
  std::vector<Sent> outgoing_;           ///< messages sent last, see outgoing()
  std::uint64_t released_ = 0;           ///< number of messages that the peer has released
  std::uint64_t last_from_heap_ = 0;     ///< number of the last message sent from the heap
  std::uint64_t written_ = 0;            ///< number of messages known to need no source any more
  std::vector<std::uint64_t> to_repeat_; ///< numbers of messages that were lost with a rail

  // Receiving.
  std::array<Offered, verbs::kOffers> offered_;
  std::vector<Noticed> noticed_; ///< messages noticed last, by number % places
  std::uint64_t credited_ = 0;   ///< number of released messages of which the peer knows
  bool credit_lost_ = false;     ///< whether the last credit may have been lost with a rail

  std::uint32_t calls_ = 0;
  bool refused_ = false; ///< true: the peer has written nonsense
  std::atomic<bool> stuck_{
      false}; ///< set by the owner, taken by was_stuck(); carries no other data
  std::atomic<std::uint32_t> suspected_{0}; ///< rails to give up, by bits
  std::atomic<bool> has_reports_{false};    ///< whether reports_ is not empty
  std::mutex reports_mutex_;
  std::vector<verbs::RailReport> reports_; ///< reports of the peer, guarded by reports_mutex_
};

} // namespace whorl
