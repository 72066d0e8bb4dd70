#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "base/fingerprint.h"
#include "base/wait.h"

namespace whorl {

/// A received message, valid until it is released. `data == nullptr` means that there is none.
struct Message {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  Fingerprint fingerprint;
  /// Whether the sender has written `data` with ordinary stores, and will write there again, so
  /// that another core's cache may have it. False is always right.
  bool in_another_cache = false;
  explicit operator bool() const noexcept { return data != nullptr; }
};

/// Outcome of an attempt to send without a copy.
enum class DescriptorSend : std::uint8_t {
  kSent,        ///< sent; the source must stay unchanged until the peer has released the message
  kBusy,        ///< every slot is taken; try again
  kUnreachable, ///< the source cannot be sent without a copy; use try_reserve()
};

/// Advice on stores to the memory that try_reserve() or try_put() returned.
struct StoreHint {
  bool nontemporal = false; ///< whether stores that bypass the caches cost less than ordinary ones
  /// Whether the endpoint measures which stores cost less: then `nontemporal` is to be followed
  /// even if there is another reason to bypass the caches.
  bool on_trial = false;
};

/// Optional abilities of an endpoint. Constant once it is connected, so that the data path
/// reads a field where it would otherwise make a call.
struct EndpointTraits {
  /// Number of messages, from the next one on, for which expose_recv_buffer() takes buffers.
  std::uint64_t recv_buffers_ahead = 0;
  /// Whether messages that were handed over may need this side again, see flushed(): they wait in a
  /// queue of this side, or may be lost and sent again.
  bool queues_sends = false;
};

/// Minimum size of messages that are filled with non-temporal stores: with smaller messages the
/// gain is less than the cost of the fence, and they are too short to be timed.
inline constexpr std::size_t kMinNontemporalBytes = 2048;

/// Minimum size of messages without a copy. With smaller messages a copy through a slot costs less
/// than to look up the address of the peer's memory, to touch cache lines of that memory for the
/// first time, and to wait until the peer has done so.
inline constexpr std::size_t kMinSharedBytes = 4096;

/// One end of a connected, in-order, bidirectional FIFO between two ranks. Each direction has a
/// fixed number of slots; a message occupies one from when it is handed over until the peer's
/// release().
///
///     this side:  try_reserve() ▶ fill ▶ commit()   ┄┄▶   peer:  try_peek() ▶ use ▶ release()
///
/// - *Who calls, and when.* The engine of the communicator that owns the transport, from connect()
///   on until the transport is destroyed. One thread at a time calls the endpoints of a transport;
///   the calling thread may change between calls.
/// - *Blocking.* No call blocks or allocates. A call that cannot go on returns that and is made
///   again. Only progress() and, if the comment of a transport's class says so, other calls enter
///   the kernel.
/// - *Failure.* No call throws. A transport that finds the peer dead, or its message malformed,
///   sets the communicator's error (Membership::comm_error), which ends every wait. From then on
///   the calls of all its endpoints may find nothing, send nothing and return kFailed, but must
///   stay safe to make.
///
/// A new transport implements the four calls of the first section. With them alone all operations
/// work; each further section makes some of them faster, and may be left out.
class Endpoint {
 public:
  static constexpr std::size_t kWholeSlot = std::numeric_limits<std::size_t>::max();
  virtual ~Endpoint() = default;

  const EndpointTraits& traits() const noexcept { return traits_; }
  /// Returns the number of messages handed over so far, by commit() or by try_send_descriptor().
  std::uint64_t sent() const noexcept { return sent_; }
  /// Returns the number of messages released so far.
  std::uint64_t received() const noexcept { return received_; }

  // --- 1. What every endpoint does ---

  /// Returns the memory to which the next message is written; empty if the peer owns all slots. A
  /// caller that passes the `bytes` of the message gets at least as many, otherwise a whole slot,
  /// 64-byte aligned. Repeated calls with the same `bytes`, without commit(), return the same
  /// memory.
  virtual std::span<std::byte> try_reserve(std::size_t bytes = kWholeSlot) noexcept = 0;
  /// Hands the slot of try_reserve(), with `bytes` of payload (0 is legal), to the peer, or the
  /// memory of try_put(), which takes a slot, too. Counts in `sent_`.
  virtual void commit(std::size_t bytes, const Fingerprint& fingerprint) noexcept = 0;
  /// Finds the oldest message that was not released; complete, and the same until release(). May be
  /// called any number of times, also only to describe a wait.
  virtual Message try_peek() noexcept = 0;
  /// Gives the slot of the peeked message back to the peer. Counts in `received_`.
  virtual void release() noexcept = 0;

  // --- Ranks that have left ---

  /// Whether the peer has left in good order and all that it has sent here was released. May find
  /// out only in try_peek(), in peek_arrived() or in the transport's poll_failures().
  virtual bool has_ended() noexcept { return false; }
  /// Does the same as try_peek() for a caller that waits for any of several peers: that the peer
  /// has left while there is no message is no failure.
  virtual Message peek_arrived() noexcept { return has_ended() ? Message{} : try_peek(); }

  // --- 2. Sending without a copy: the peer reads the source where it is ---

  /// Whether try_send_descriptor() would take `source`, so that it pays to have the data there
  /// rather than to write it into a slot. The answer for a source may change.
  virtual bool can_send_descriptor(std::span<const std::byte> source) const noexcept {
    static_cast<void>(source);
    return false;
  }
  /// Sends `source` without copying it; takes one slot, and counts in `sent_`.
  virtual DescriptorSend try_send_descriptor(std::span<const std::byte> source,
                                             const Fingerprint& fingerprint) noexcept {
    static_cast<void>(source), static_cast<void>(fingerprint);
    return DescriptorSend::kUnreachable;
  }
  /// Counts the messages that no longer need their source: the source of message k (from 1) may be
  /// changed once `released() >= k`. Never larger than sent(). An endpoint that copies all messages
  /// returns sent().
  virtual std::uint64_t released() noexcept { return sent_; }

  // --- 3. Receiving without a copy: the message arrives in the receive buffer ---

  /// Posts a destination for the payload of the next message, if its fingerprint is `expected` and
  /// its size `destination.size()`; called where traits().recv_buffers_ahead is 0. The transport
  /// may then receive the payload there directly; try_peek() shows that by returning `data ==
  /// destination.data()`. Valid until the next release(); the transport writes to the destination
  /// only after it has compared the fingerprint. May be called repeatedly.
  virtual void post_recv(std::span<std::byte> destination, const Fingerprint& expected) noexcept {
    static_cast<void>(destination), static_cast<void>(expected);
  }
  /// Finds the fingerprint of the next message, which need not be complete: a destination may still
  /// be posted for the message. Returns false if the fingerprint has not arrived.
  virtual bool try_hear(Fingerprint& fingerprint) noexcept {
    const Message message = try_peek();
    if (message) fingerprint = message.fingerprint;
    return static_cast<bool>(message);
  }
  /// Exposes a destination for the payload of message `number` in advance, to which the peer may
  /// write at any time from now on until the message has arrived. received() + 1 is the number of
  /// the next message, and received() + traits().recv_buffers_ahead the largest number. Called once
  /// for each number, with at least kMinSharedBytes. Returns false if the peer writes neither to
  /// this destination nor to later ones until the next operation.
  virtual bool expose_recv_buffer(std::uint64_t number, std::span<std::byte> destination,
                                  const Fingerprint& expected) noexcept {
    static_cast<void>(number), static_cast<void>(destination), static_cast<void>(expected);
    return false;
  }
  /// Returns the memory that the peer has exposed for the next message by expose_recv_buffer(),
  /// with this size and fingerprint, if this side can write there; otherwise empty. The caller
  /// fills and commits it at once, without try_reserve(): until then the peer's
  /// Transport::revoke_access() waits.
  virtual std::span<std::byte> try_put(std::size_t bytes, const Fingerprint& fingerprint) noexcept {
    static_cast<void>(bytes), static_cast<void>(fingerprint);
    return {};
  }

  // --- 4. How to fill slots ---

  /// Advises on stores to the memory that try_reserve() or try_put() returned for a message of
  /// `bytes`, at least kMinNontemporalBytes.
  virtual StoreHint store_hint(std::size_t bytes) const noexcept {
    static_cast<void>(bytes);
    return {};
  }

  // --- 5. Where this side's processor has to move the bytes ---

  /// Whether everything sent will reach the peer without further calls of this side. Called if
  /// traits().queues_sends: an operation that sends is complete only when flushed() is true.
  virtual bool flushed() noexcept { return true; }
  /// Whether the peer needs no further calls of this side for what this side has received. Called
  /// in place of flushed() where an operation has only received: what another transfer sends to the
  /// same peer may have to wait until the peer receives it, and the peer for this operation.
  virtual bool acknowledged() noexcept { return flushed(); }
  /// Moves bytes, if the transport needs the caller's processor for it; called again and again
  /// while an operation finds nothing else to do. kFailed: the communicator's error is set.
  virtual Progress progress() noexcept { return Progress::kIdle; }

 protected:
  explicit Endpoint(const EndpointTraits& traits = {}) noexcept : traits_(traits) {}

  EndpointTraits traits_;
  std::uint64_t sent_ = 0;     ///< messages handed over
  std::uint64_t received_ = 0; ///< messages released
};

} // namespace whorl
