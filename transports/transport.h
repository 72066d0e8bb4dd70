#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fingerprint.h"
#include "base/status.h"
#include "base/verdict.h"
#include "base/wait.h"

namespace whorl {

class FdMailbox;

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

inline constexpr std::size_t kMaxAddressBytes = 192;

/// Least size of Transport::board() for so many ranks: as much for each, and 8 bytes for each pair
/// of those that may share a device.
constexpr std::size_t board_bytes_for(std::size_t ranks) noexcept {
  constexpr std::size_t kMostOnDevices = 64;
  return 4096 + ranks * 1024 + (ranks <= kMostOnDevices ? ranks * ranks * 8 : 0);
}

/// Ranks of one communicator that share devices at most.
inline constexpr int kMostDeviceRanks = 64;

/// What one rank tells all others about itself before connections are made. Fixed size, sent as it
/// is; every field comes from another process and is checked before use.
struct RankCard {
  std::uint32_t rank = 0;
  std::uint32_t process_id = 0;
  std::uint64_t host_key = 0;       ///< equal on ranks that can share memory
  std::uint64_t machine_key = 0;    ///< equal on ranks that share processors, also in containers
  std::uint64_t process_key = 0;    ///< random, equal on ranks of one process
  std::array<char, 64> host_name{}; ///< zero-terminated, for messages
  std::uint32_t slots = 0;          ///< that this rank asks for; 0: any number
  std::uint32_t slot_bytes = 0;     ///< … and of which size; 0: any
  std::uint32_t channels = 0;
  std::uint32_t version = 0;
  std::uint64_t transports = 0;    ///< hash of the list that `addresses` is indexed by
  std::uint64_t memory_budget = 0; ///< bytes that this rank's part may occupy; 0: no limit
  /// 1: shares memory of devices with the processes of its host, where the program has any.
  std::uint64_t device_peers = 0;
  struct Address {
    std::uint32_t size = 0;
    std::array<std::byte, kMaxAddressBytes> bytes{};
  };
  std::array<Address, 4>
      addresses{}; ///< indexed by the transport's place in the communicator's list
};

/// What authenticates the members of one communicator to each other.
struct Identity {
  std::array<std::byte, 16> job{};    ///< public: names the communicator on the wire
  std::array<std::byte, 32> secret{}; ///< never sent
};

/// A communicator as its transports see it. Outlives them.
struct Membership {
  std::string name; ///< of the communicator, for messages; may be empty
  int rank = 0;
  int nranks = 1;
  Identity identity;
  std::vector<RankCard> cards;               ///< of all ranks, in rank order
  int channels = 2;                          ///< endpoints for each pair of ranks
  int slots = 8;                             ///< of each direction of an endpoint
  std::size_t slot_bytes = 65536;            ///< multiple of 64
  std::uint64_t timeout_ns = 30'000'000'000; ///< for connect()
  Verdict* verdict = nullptr;

  /// "rank 3 (host node7, pid 4242)", with the communicator's name if it has one.
  std::string describe(int rank) const;
  std::vector<std::string> names() const; ///< of all ranks, as describe() has them
  /// Whether processes of this communicator may map each other's device memory: all ranks are on
  /// one host, few, have a driver, and want to.
  bool shares_devices() const noexcept;
};

/// Cost of reaching a peer. Both ranks of a pair must come to the same answer from the two cards.
struct Reach {
  bool reachable = false;
  double alpha_us = 0;        ///< time for an empty message
  double overhead_us = 0.1;   ///< of it, processor time of each side
  double beta_us_per_kib = 0; ///< time for each further KiB; in shared memory, at either end
  bool networked = false;     ///< the kernel moves the data
};

/// Memory of a transport, in bytes.
struct TransportMemory {
  std::size_t reserved = 0; ///< address space
  std::size_t fifos = 0;    ///< backed for messages that this rank sends, and of its own staging
  std::size_t shared = 0;   ///< of it and of all peers together, as far as it is in memory
  std::size_t kernel = 0;   ///< in buffers of sockets
  std::size_t fixed = 0;    ///< whatever is sent
};

/// Moves messages between this rank and some of its peers. Life: listen(), then connect(), then
/// endpoints; destruction closes everything without waiting for anyone.
class Transport : public Napper {
 public:
  virtual std::string_view name() const noexcept = 0;
  /// Prepares to be connected to. Returns the address for this rank's card (at most
  /// kMaxAddressBytes; may be empty).
  virtual Result<std::vector<std::byte>> listen(const Identity& identity) = 0;
  /// Whether and how well two ranks can be connected. `index` is this transport's place in
  /// RankCard::addresses.
  virtual Reach reach(const RankCard& self, const RankCard& peer, std::size_t index) const = 0;
  /// Payload of a slot that suits this transport, where nobody asks for another.
  virtual std::size_t slot_bytes() const noexcept { return 65536; }
  /// Whether looking for a message enters the kernel.
  virtual bool polls_by_system_calls() const noexcept { return false; }
  /// Connects to all of `peers` (each of which does the same) and stops listening. An error names
  /// the peer. `membership` outlives the transport.
  virtual Status connect(const Membership& membership, std::span<const int> peers,
                         std::size_t index) = 0;
  /// The endpoint to a connected peer, 0 ≤ channel < membership.channels. Owned by the transport.
  virtual Endpoint* endpoint(int peer, int channel) noexcept = 0;
  /// What one endpoint occupies of this rank's budget once it has been used.
  virtual std::size_t endpoint_bytes(int slots, std::size_t slot_bytes) const noexcept = 0;
  /// What is occupied now. Any thread.
  virtual TransportMemory memory() const noexcept = 0;
  /// Memory that all ranks of this host share, at least board_bytes_for() them, in pages: zeros at
  /// first, and not used by the transport. Empty if it has none. Lives as long as the transport.
  virtual std::span<std::byte> board() noexcept { return {}; }
  /// By which the ranks of other processes get descriptors, where Membership::shares_devices();
  /// null if it has none. Lives as long as the transport.
  virtual FdMailbox* mailbox() noexcept { return nullptr; }
  /// Tells the connected peers why this rank has given up. Bounded, does not wait for anyone. Any
  /// thread.
  virtual void tell(const Status& verdict) noexcept = 0;
  /// After a failure, when no endpoint is used any more: keeps peers from reading what this rank
  /// has published and from writing to the places that it has offered, for good. False while one of
  /// them still does so; call again.
  virtual bool withdraw_memory() noexcept { return true; }
  /// nap() and look_around() as in Napper: look_around() notices dead peers and what they tell().
};

/// Limits on what is accepted in a card from another rank.
Status check_card(const RankCard& card, int rank, int nranks);

} // namespace whorl
