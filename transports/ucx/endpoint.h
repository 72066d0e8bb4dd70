#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transports/endpoint.h"
#include "transports/ucx/link.h"
#include "transports/ucx/wire.h"

namespace whorl {

/// Endpoint over active messages of UCX: those of one channel on the connection to a peer.
///
/// Sending. The slots are staging memory of this side, as over TCP: a message holds one from
/// commit(), or from try_send_descriptor(), which sends the user's memory itself, until UCX needs
/// its payload no more. UCX sends small messages at once and lets the receiver fetch large ones.
///
/// Credits. At most window() messages are on their way to the receiver's release(), so that a
/// receiver which serves another peer meanwhile holds a bounded number. A sender that has more than
/// `slots` on their way asks in some of the messages for the receiver's count of released messages.
/// The sender is complete (flushed()) only when it has all answers, so a receiver never sends
/// credits to a rank that may have left: the kernel would reset the connection of that rank, and
/// what was sent last would be lost. No wait is longer than over `slots` shared slots.
///
/// Receiving. A small message stays in UCX's memory, or is copied to a slot, until release(). A
/// large one is fetched as soon as it is announced: to the buffer that expose_recv_buffer() has
/// given for it, else to a slot.
class UcxEndpoint final : public Endpoint {
 public:
  /// Returns the largest number of messages on their way. The larger part beyond the slots, the
  /// fewer credits; the smaller, the less memory.
  static std::size_t window(std::size_t slots) noexcept { return slots + slots / 2; }
  /// Returns the bytes of memory, 64-byte aligned, that an endpoint needs. Untouched pages cost
  /// nothing.
  static std::size_t memory_bytes(int slots, std::size_t slot_bytes) noexcept;

  /// Makes an endpoint; `memory` and `link` outlive it.
  UcxEndpoint(UcxLink& link, std::uint32_t channel, int slots, std::size_t slot_bytes,
              std::span<std::byte> memory);

  std::span<std::byte> try_reserve(std::size_t bytes = kWholeSlot) noexcept override;
  void commit(std::size_t bytes, const Fingerprint& fingerprint) noexcept override;
  bool can_send_descriptor(std::span<const std::byte> source) const noexcept override {
    return source.size() <= slot_bytes_;
  }
  DescriptorSend try_send_descriptor(std::span<const std::byte> source,
                                     const Fingerprint& fingerprint) noexcept override;
  std::uint64_t released() noexcept override;
  bool flushed() noexcept override;
  /// Whether the kernel has the credits that the peer waits for: UCX keeps a credit in its own
  /// memory while the socket is full of what other transfers send. The peer's worker empties the
  /// socket in any call, so no receive of the peer has to come first.
  bool acknowledged() noexcept override { return !owes_credit() && link_.flushed(); }

  bool expose_recv_buffer(std::uint64_t number, std::span<std::byte> destination,
                          const Fingerprint& expected) noexcept override;
  Message try_peek() noexcept override { return peek(true); }
  bool has_ended() noexcept override {
    return received_ >= end_.load(std::memory_order_acquire); // pairs with release in set_end()
  }
  Message peek_arrived() noexcept override { return has_ended() ? Message() : peek(false); }
  void release() noexcept override;
  Progress progress() noexcept override;

  // --- For the transport. ---

  /// Takes a message that has arrived; the caller holds the worker's mutex.
  ucs_status_t arrive(const ucx::Header& header, void* data, std::size_t bytes,
                      std::uint64_t attributes) noexcept;
  /// Takes the counts in the header of any message; the caller holds the worker's mutex.
  void take_counts(const ucx::Header& header) noexcept;
  /// Records that the peer has left after it had sent `messages`.
  void set_end(std::uint64_t messages) noexcept {
    end_.store(messages, std::memory_order_release); // pairs with acquire in has_ended()
  }
  /// Lets no message be fetched to exposed buffers any more; the caller holds the worker's mutex.
  void revoke() noexcept { revoked_ = true; }
  /// Returns whether UCX may still write to exposed buffers or read what was sent; the caller holds
  /// the worker's mutex.
  bool busy() const noexcept;
  /// Gives UCX's memory back; the caller holds the worker's mutex.
  void drop_messages() noexcept;

 private:
  /// More: large messages of a longer burst go straight to their destinations.
  static constexpr std::uint64_t kBuffersAhead = 32;
  /// Largest payload that is copied out of UCX's memory at once. Larger: fewer buffers of UCX are
  /// held. Smaller: less is copied.
  static constexpr std::size_t kCopyBytes = 2048;

  /// A message or credit that UCX is sending.
  struct Outgoing {
    UcxEndpoint* owner = nullptr;
    ucx::Header header;
    std::atomic<bool> done{true};
  };
  enum class State : std::uint8_t { kEmpty, kFetching, kReady };
  /// A message from its arrival to release().
  struct Arrival {
    UcxEndpoint* owner = nullptr;
    std::atomic<State> state{State::kEmpty};
    bool to_exposed = false; ///< whether it goes to an exposed buffer
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    void* held = nullptr; ///< memory of UCX to give back
    Fingerprint fingerprint;
  };
  struct Exposed {
    std::uint64_t number = 0;
    std::span<std::byte> memory;
    Fingerprint expected;
  };

  static void on_sent(void* request, ucs_status_t status, void* argument);
  static void on_fetched(void* request, ucs_status_t status, std::size_t bytes, void* argument);

  std::byte* slot(std::uint64_t message) const noexcept {
    return memory_ + (message % slots_) * slot_bytes_;
  }
  std::byte* arrival_slot(std::uint64_t message) const noexcept {
    return memory_ + (slots_ + message % window_) * slot_bytes_;
  }
  Arrival& arrival(std::uint64_t message) noexcept { return arrivals_[message % window_]; }
  bool may_send() noexcept;
  void post(const std::byte* payload, std::size_t bytes, const Fingerprint& fingerprint) noexcept;
  void count_completed() noexcept;
  /// Returns whether calls are needed for what was handed over or is owed.
  bool pending() const noexcept {
    return completed_ != sent_ || credited_.load(std::memory_order_relaxed) < asked_for_ ||
           owes_credit();
  }
  bool owes_credit() const noexcept;
  void pay_credit() noexcept;
  void fetch(Arrival& message, std::uint64_t number, void* descriptor) noexcept;
  ucs_status_t refuse(const char* what) noexcept;
  Message peek(bool needed) noexcept;
  void lost(bool needed = true) noexcept;

  UcxLink& link_;
  const std::uint32_t channel_;
  const std::size_t slots_;
  const std::size_t window_;
  const std::size_t slot_bytes_;
  std::byte* const memory_; ///< slots_ slots for sending, then window_ for receiving
  bool failed_ = false;

  // Sending. Messages completed_ … sent_ − 1 are in UCX's hands.
  std::unique_ptr<Outgoing[]> outgoing_; ///< [number % slots_]
  /// Counts of bytes on the link after each message, [number % window_]; guarded by the worker's
  /// mutex.
  std::unique_ptr<std::uint64_t[]> positions_;
  std::uint64_t completed_ = 0;
  std::uint64_t asked_at_ = 0;  ///< number of messages sent when the receiver's count was asked for
  std::uint64_t asked_for_ = 0; ///< count that was asked for last
  std::atomic<std::uint64_t> credited_{0}; ///< number of messages that the receiver has released

  // Receiving.
  std::unique_ptr<Arrival[]> arrivals_;        ///< [number % window_]
  std::array<Exposed, kBuffersAhead> exposed_; ///< guarded by the worker's mutex
  bool revoked_ = false;                       ///< guarded by the worker's mutex
  std::atomic<std::uint64_t> consumed_{0};     ///< received_, for callbacks
  std::atomic<std::uint64_t> wanted_{0};       ///< count that the peer has asked for
  std::atomic<std::uint64_t> reported_{0};     ///< count that the peer was last told
  std::array<Outgoing, 4> credits_;
  std::atomic<std::uint64_t> end_{UINT64_MAX};
};

} // namespace whorl
