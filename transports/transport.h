#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "base/wait.h"
#include "transports/endpoint.h"

namespace whorl {

class FdMailbox;

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

} // namespace whorl
