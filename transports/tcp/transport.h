#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/system.h"
#include "net/mesh.h"
#include "transports/control/network_transport.h"
#include "transports/control/slot_memory.h"
#include "transports/tcp/endpoint.h"
#include "transports/tcp/tuning.h"

namespace whorl {

/// Transport over TCP: one control socket for each pair of ranks, which carries errors and goodbyes
/// and whose end means the death of the peer, and one data socket for each pair and channel. The
/// higher rank of a pair connects to the lower one.
class TcpTransport final : public NetworkTransport {
 public:
  /// Makes a transport that encrypts everything which it sends, or nothing; alike on all ranks.
  explicit TcpTransport(bool encrypts = false)
      : NetworkTransport({.name = "tcp", .slot_bytes = 512 * 1024, .polls_by_system_calls = true}),
        encrypts_(encrypts) {}
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;
  /// Sends a goodbye to all peers and closes everything, without waiting. All messages of complete
  /// operations are in the kernel, which delivers them afterwards.
  ~TcpTransport() override;

  /// Binds ports. connect() listens at those to which a peer is going to connect.
  Result<std::vector<std::byte>> listen(const Identity& identity) override;
  Reach reach(const PeerInfo& self, const PeerInfo& peer, std::size_t index) const override;
  Status connect(const Membership& membership, std::span<const int> peers,
                 std::size_t index) override;
  Endpoint* endpoint(int peer, int channel) noexcept override;
  std::size_t endpoint_bytes(int slots, std::size_t slot_bytes) const noexcept override;
  TransportMemory memory() const noexcept override;

  void block(std::uint64_t max_ns) noexcept override;
  void poll_failures(std::uint64_t waited_ns) noexcept override {
    control_.poll();
    control_.judge_deaths(waited_ns);
  }

 private:
  struct Peer {
    int rank = -1;
    std::vector<std::unique_ptr<TcpEndpoint>> endpoints;
  };

  /// Returns the bytes of memory_ that one endpoint takes.
  static std::size_t slot_memory(int slots, std::size_t slot_bytes) noexcept;
  Status adopt(std::vector<MeshLink> links, std::span<const int> peers);
  Status watch(const Peer& peer);
  std::uint64_t carried(int peer) noexcept;
  Peer* find(int rank) noexcept;

  const bool encrypts_;
  const Membership* membership_ = nullptr;
  TcpTuning tuning_;
  std::vector<Peer> peers_;
  std::vector<int> peer_of_rank_; ///< index in peers_, −1 for none
  SlotMemory memory_;             ///< memory of all endpoints
  // Edge-triggered: a socket is reported once for each arrival, whichever thread sleeps. A thread
  // that waits for a socket has seen it empty (or full) before it sleeps, so no arrival is missed.
  Fd full_epoll_; ///< during a sleep: the sockets that have no room for queued messages
  Fd epoll_;      ///< the data sockets, the control sockets and full_epoll_
};

} // namespace whorl
