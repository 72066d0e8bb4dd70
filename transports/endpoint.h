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
  explicit operator bool() const noexcept { return data != nullptr; }
};

/// What an attempt to send without a copy came to.
enum class Publish : std::uint8_t {
  kSent,        ///< on its way; the source must stay unchanged until the peer has released it
  kBusy,        ///< every slot is taken; try again
  kUnreachable, ///< this source cannot be sent without a copy; use try_reserve()
};

/// Messages below this are not filled with streaming stores: what is gained does not pay for the
/// fence, and they are too short to be timed.
inline constexpr std::size_t kLeastStreamedBytes = 16 * 1024;

/// Below this a copy through a slot costs less than to look up where the other side's memory is, to
/// touch lines of it that were not seen before, and to wait until the other side has done so.
inline constexpr std::size_t kLeastSharedBytes = 4096;

/// One end of a connected, in-order, bidirectional FIFO between two ranks. Each direction has a
/// fixed number of slots; a message occupies one from commit() until the peer's release(). Owned by
/// one channel: never called by two threads at once. No call blocks or allocates; only progress()
/// and, where a transport says so, try_peek() and commit() enter the kernel.
class Endpoint {
 public:
  static constexpr std::size_t kWholeSlot = std::numeric_limits<std::size_t>::max();
  virtual ~Endpoint() = default;

  // --- sending ---
  /// Where to write the next message; empty if the peer owns all slots. A caller that says the
  /// `bytes` of the message gets at least as many; one that does not gets slot_bytes(), 64-byte
  /// aligned. Repeated calls without commit() give the same place.
  virtual std::span<std::byte> try_reserve(std::size_t bytes = kWholeSlot) noexcept = 0;
  /// Whether streaming stores into what try_reserve(bytes) or try_place() gave cost less than
  /// ordinary ones.
  virtual bool prefers_streaming() const noexcept { return false; }
  /// Whether that is being found out: then prefers_streaming() is to be followed also where there
  /// is another reason to stream, or the trial would compare streaming stores with themselves.
  virtual bool tries_stores() const noexcept { return false; }
  /// Where the peer wants the next message, if it has offered a place for one of this size and
  /// fingerprint, and this side can write there; else empty. To be filled and committed at once,
  /// without try_reserve(): until then the peer cannot withdraw_memory().
  virtual std::span<std::byte> try_place(std::size_t bytes,
                                         const Fingerprint& fingerprint) noexcept {
    static_cast<void>(bytes), static_cast<void>(fingerprint);
    return {};
  }
  /// Hands the slot of try_reserve(), with `bytes` of payload (0 is legal), to the peer, or the
  /// place of try_place(), which takes a slot, too.
  virtual void commit(std::size_t bytes, const Fingerprint& fingerprint) noexcept = 0;
  /// Whether try_publish() would take `source`, so that it pays to have the data there rather than
  /// to write it into a slot.
  virtual bool can_publish(std::span<const std::byte> source) const noexcept {
    static_cast<void>(source);
    return false;
  }
  /// Sends `source` without copying it, where the transport can; takes one slot.
  virtual Publish try_publish(std::span<const std::byte> source,
                              const Fingerprint& fingerprint) noexcept {
    static_cast<void>(source), static_cast<void>(fingerprint);
    return Publish::kUnreachable;
  }
  /// Messages handed over so far (commit() and kSent).
  virtual std::uint64_t sent() const noexcept = 0;
  /// How many of them no longer need their source: message k (from 1) may have its source changed
  /// once `released() >= k`. Never larger than sent().
  virtual std::uint64_t released() noexcept = 0;
  /// Whether everything sent will reach the peer without further calls of this side.
  virtual bool flushed() noexcept { return true; }

  // --- receiving ---
  /// Says where the payload of the next message is wanted, if its fingerprint is `expected` and its
  /// size `destination.size()`. The transport may then receive it there directly; try_peek() shows
  /// that by returning `data == destination.data()`. Valid until the next release(); the transport
  /// writes to it only after it has compared the fingerprint. May be called repeatedly.
  virtual void offer(std::span<std::byte> destination, const Fingerprint& expected) noexcept {
    static_cast<void>(destination), static_cast<void>(expected);
  }
  /// How many messages, from the next one on, offer_place() takes.
  virtual std::uint64_t places_ahead() const noexcept { return 0; }
  /// As offer(), for message `number` (from 1; received() + 1 is the next) and in advance: the peer
  /// may write to the destination at any time from now on until the message is here. Once for each
  /// number, at least kLeastSharedBytes. False: it stays unwritten.
  virtual bool offer_place(std::uint64_t number, std::span<std::byte> destination,
                           const Fingerprint& expected) noexcept {
    static_cast<void>(number), static_cast<void>(destination), static_cast<void>(expected);
    return false;
  }
  /// Messages released so far.
  virtual std::uint64_t received() const noexcept = 0;
  /// The oldest message that was not released; complete, and the same until release().
  virtual Message try_peek() noexcept = 0;
  /// Gives the slot of the peeked message back to the peer.
  virtual void release() noexcept = 0;

  // --- both ---
  /// Moves bytes where the transport needs the caller's processor for it (TCP). kFailed: the error
  /// has been raised in the verdict.
  virtual Progress progress() noexcept { return Progress::kIdle; }
};

} // namespace whorl
