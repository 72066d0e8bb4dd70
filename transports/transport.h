#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fingerprint.h"
#include "base/membership.h"
#include "base/status.h"
#include "base/wait.h"
#include "net/address.h"
#include "transports/endpoint.h"

namespace whorl {

/// Properties of a kind of transport.
struct TransportTraits {
  std::string_view name;              ///< name in WHORL_TRANSPORTS
  std::size_t slot_bytes = 65536;     ///< default payload of a slot
  bool polls_by_system_calls = false; ///< whether a poll for a message enters the kernel
  bool shares_memory = false;         ///< whether a message has arrived as soon as it is sent
};

/// Cost of reaching a peer. Both ranks of a pair must come to the same answer from the two
/// PeerInfos.
struct Reach {
  bool reachable = false;
  double alpha_us = 0;        ///< time for an empty message
  double overhead_us = 0.1;   ///< part of alpha_us that is processor time of each side
  double beta_us_per_kib = 0; ///< time for each further KiB; in shared memory, at either end
  bool networked = false;     ///< whether the data crosses a network, or the kernel moves it
};

/// Time for which a rank that is not known to need a dead peer goes on without progress. Longer:
/// more last calls complete that need the peer no more, but other ranks that are late. Shorter:
/// faster errors.
inline constexpr std::uint64_t kAfterDeathNs = 30'000'000;

/// Operation in which a rank has made no progress for a while.
struct StuckOperation {
  /// Value of `waits_for` of a rank that is stuck in nothing: it has failed in a split, the one
  /// with the number of `fingerprint`.
  static constexpr std::int32_t kFailedSplit = -2;

  Fingerprint fingerprint;
  std::int32_t waits_for = -1; ///< rank of the communicator; −1: not known; or kFailedSplit
  /// Number of messages of transfers that this rank has sent to the one that is told, modulo 2^32.
  /// Only between hosts: in shared memory one report is for all.
  std::uint32_t sent = 0;
  friend bool operator==(const StuckOperation&, const StuckOperation&) = default;
};
static_assert(sizeof(StuckOperation) == 24);

/// Memory of a transport, in bytes.
struct TransportMemory {
  std::size_t reserved = 0; ///< address space
  std::size_t fifos = 0;    ///< memory for messages that this rank sends, and for its own staging
  std::size_t shared = 0;   ///< memory that this rank shares with its peers, as far as it is backed
  std::size_t kernel = 0;   ///< buffers of sockets
  std::size_t fixed = 0;    ///< memory that is independent of messages
};

/// Carrier of messages between this rank and some of its peers. One object serves one communicator,
/// in this order of life:
///
///     constructed ▶ listen() ▶ reach() … ▶ connect() ▶ endpoint() … ▶ [notify_peers() ▶
///     revoke_access()] ▶ destroyed
///
/// - *Who calls.* The set-up of the communicator (src/comm/setup.cc), in the thread that makes it;
///   after connect() the engine's thread uses the endpoints, and each thread that waits calls
///   block() and poll_failures(). Any thread may make the calls whose comments say so, at any time
///   after construction, or after connect() where they are about a connected peer; only one thread
///   at a time makes the other calls.
/// - *Blocking.* Only connect() and block() wait, and both have an end: Membership::timeout_ns and
///   the argument of block().
/// - *Failure.* listen() and connect() return a sentence that names peer and remedy; the object may
///   then only be destroyed. Later failures set Membership::comm_error, as in endpoint.h.
/// - *The end.* Destruction closes everything and waits for nobody. Messages that were sent must
///   still arrive. A peer that finds this rank gone has an error only if it still needs this rank.
class Transport : public Waiter {
 public:
  const TransportTraits& traits() const noexcept { return traits_; }

  // --- 1. Connecting ---

  /// Prepares to be connected to. Returns the address for this rank's PeerInfo (at most
  /// kMaxAddressBytes; may be empty).
  virtual Result<std::vector<std::byte>> listen(const Identity& identity) = 0;
  /// Returns why this transport can reach nobody from here, found by listen(); empty if it may.
  const std::string& absence() const noexcept { return absence_.why; }
  /// Returns whether that is a fault which the user would want to mend, since another transport
  /// will be slower.
  bool absence_is_a_fault() const noexcept { return absence_.is_a_fault; }
  /// Returns whether two ranks can be connected, and at which costs: a pure function of the two
  /// infos, with constants as costs, for any two ranks. `index` is this transport's place in
  /// PeerInfo::addresses.
  virtual Reach reach(const PeerInfo& self, const PeerInfo& peer, std::size_t index) const = 0;
  /// Estimates the bytes of this rank's budget that one endpoint occupies once it has been used.
  virtual std::size_t endpoint_bytes(int slots, std::size_t slot_bytes) const noexcept = 0;
  /// Connects to all of `peers` (each of which does the same at the same time) and stops listening.
  /// An error names the peer. Ends early with the error that Membership::comm_error gets meanwhile.
  /// `membership` outlives the transport.
  virtual Status connect(const Membership& membership, std::span<const int> peers,
                         std::size_t index) = 0;

  // --- 2. Connected ---

  /// Returns the endpoint to a connected peer, 0 ≤ channel < membership.channels; null for others.
  /// Owned by the transport, and the same at each call.
  virtual Endpoint* endpoint(int peer, int channel) noexcept = 0;
  /// Counts the memory that is occupied now. Any thread.
  virtual TransportMemory memory() const noexcept = 0;
  /// Counts the messages that were sent without a copy: the peer reads them in this rank's memory,
  /// or this rank has written them to the peer's. Any thread.
  virtual std::uint64_t zero_copy_messages() const noexcept { return 0; }

  // --- 3. Waiting (Waiter) ---

  // block(max_ns): sleeps until a message may have come from a peer, at most max_ns. Any thread.
  // poll_failures(waited_ns): finds dead peers, and errors sent by notify_peers(). Any thread.

  /// Gives peers the answers that they may need from endpoints which the present operation does not
  /// use. Called about once a millisecond by the thread that uses the endpoints, while it waits.
  virtual void serve_idle_endpoints() noexcept {}

  /// Tells the peers in which operation this rank is stuck, so that ranks in different operations
  /// find out before the deadline. Called again when something has changed, by the thread that uses
  /// the endpoints; may do nothing where peers do not listen. `sent[peer]` is StuckOperation::sent
  /// for a peer; empty with an `operation` that withdraws what was told before.
  virtual void tell_stuck(const StuckOperation& operation,
                          std::span<const std::uint32_t> sent) noexcept {
    static_cast<void>(operation), static_cast<void>(sent);
  }
  /// Returns what a connected peer has told last; nothing if it has told nothing. The peer may have
  /// gone on since then. Any thread.
  virtual std::optional<StuckOperation> find_stuck(int peer) noexcept {
    static_cast<void>(peer);
    return std::nullopt;
  }

  // --- 4. Failing ---

  /// Whether a connected peer has left or is known to have died. Any thread, also after a failure,
  /// when poll_failures() looks no more.
  virtual bool is_lost(int peer) noexcept {
    static_cast<void>(peer);
    return false;
  }
  /// Returns the addresses at which a rank has listened during connect(), for a rank of another
  /// host; none if this transport does not leave the host.
  virtual Result<std::vector<SocketAddress>> outer_addresses(const PeerInfo& info,
                                                             std::size_t index) const {
    static_cast<void>(info), static_cast<void>(index);
    return std::vector<SocketAddress>();
  }

  /// Sends the error because of which this rank has given up to the connected peers; only the first
  /// call sends anything. Bounded, does not wait for any peer. Any thread.
  virtual void notify_peers(const Status& comm_error) noexcept = 0;
  /// Keeps peers from reading sources that this rank has sent by descriptor and from writing to
  /// memory that it has exposed, for good. Called after a failure, when no endpoint is used any
  /// more. Returns false while a peer still reads or writes; then it is called again. To be
  /// implemented where peers read or write without this side's processor.
  virtual bool revoke_access() noexcept { return true; }

 protected:
  explicit Transport(const TransportTraits& traits) noexcept : traits_(traits) {}

  struct Absence {
    std::string why;
    bool is_a_fault = false;
  };
  Absence absence_;

 private:
  TransportTraits traits_;
};

} // namespace whorl
