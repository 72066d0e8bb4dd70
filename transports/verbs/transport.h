#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/system.h"
#include "transports/control/network_transport.h"
#include "transports/control/slot_memory.h"
#include "transports/verbs/device.h"
#include "transports/verbs/endpoint.h"
#include "transports/verbs/queue.h"
#include "transports/verbs/rail_watch.h"
#include "transports/verbs/rails.h"
#include "transports/verbs/verbs.h"
#include "transports/verbs/wakeup.h"

namespace whorl {

/// Transport over RDMA: a reliable connection for each rail of each pair of ranks and channel, and
/// one control socket over TCP for each pair, as of the TCP transport. By the control sockets ranks
/// tell each other the addresses of queues and memory, and learn of errors, goodbyes and deaths: a
/// device alone never notices that an idle peer has died.
class VerbsTransport final : public NetworkTransport, private VerbsJudge {
 public:
  /// Makes a transport over the devices of `host`, or of this process if that is null.
  explicit VerbsTransport(VerbsPlace place, VerbsHost* host = nullptr);
  VerbsTransport(const VerbsTransport&) = delete;
  VerbsTransport& operator=(const VerbsTransport&) = delete;
  /// Waits, for a bounded time, until the device has written all messages to the peers: it forgets
  /// requests of queues that are destroyed.
  ~VerbsTransport() override;

  Result<std::vector<std::byte>> listen(const Identity& identity) override;
  Reach reach(const PeerInfo& self, const PeerInfo& peer, std::size_t index) const override;
  std::size_t endpoint_bytes(int slots, std::size_t slot_bytes) const noexcept override;
  Status connect(const Membership& membership, std::span<const int> peers,
                 std::size_t index) override;
  Endpoint* endpoint(int peer, int channel) noexcept override;
  TransportMemory memory() const noexcept override;
  void block(std::uint64_t max_ns) noexcept override;
  void poll_failures(std::uint64_t waited_ns) noexcept override;
  void serve_idle_endpoints() noexcept override { watch_.serve(); }
  bool revoke_access() noexcept override;

  /// Returns the ports by which this rank is reached, after listen(), the most important first.
  std::vector<VerbsPort> own_ports() const;

 private:
  /// Port of this rank, and what the connections by that port share.
  struct OwnPort {
    VerbsPort port;
    VerbsWakeup wakeup;
    std::vector<std::unique_ptr<VerbsCompletions>> completions; ///< [channel]
    ibv_mr* region = nullptr; ///< registration of the memory of all endpoints
    bool usable = false;      ///< whether all of this was made; else other ports are used
    std::atomic<std::uint64_t> no_link_since_ns{0}; ///< time of the first look that found none
    std::atomic<std::uint64_t> looked_ns{0};        ///< time of the last look
  };
  struct Lane {
    std::vector<std::unique_ptr<VerbsQueue>> queues; ///< [rail]
    std::unique_ptr<VerbsEndpoint> endpoint;
    verbs::EndpointAddress own;
  };
  struct Peer {
    int rank = -1;
    verbs::PortAddresses ports;
    std::vector<verbs::RailPorts> rails;
    std::uint32_t missing = 0;              ///< rails for which this side has no queue, by bits
    Status why_missing;                     ///< reason of one of them whose port is usable
    std::uint32_t joined = 0;               ///< rails that are connected on this side, by bits
    std::vector<Lane> lanes;                ///< [channel]
    std::atomic<std::uint32_t> reported{0}; ///< rails whose failure was logged, by bits
    std::atomic<bool> left{false};          ///< whether the peer has left in good order
    int stuck_polls = 0; ///< number of polls that found this rank waiting for one that has left
  };

  // Making connections: connect.cc.
  Status make_memory(std::size_t peers);
  Status prepare(OwnPort& own, std::size_t peers);
  void make_queues(std::span<const int> peers, std::size_t index);
  void make_lane(Peer& peer, std::size_t channel, std::byte* memory);
  Status exchange(std::span<MeshLink> links);
  Status join(Peer& peer, std::span<const std::byte> addresses);
  Status join_rail(Peer& peer, std::size_t rail,
                   std::span<const verbs::EndpointAddress> remote) noexcept;

  Progress connection_failed(int peer, const VerbsQueue& queue) noexcept override;
  void rail_failed(int peer, const verbs::RailReport& report,
                   const VerbsQueue& queue) noexcept override;
  bool has_left(int peer) noexcept override {
    return find(peer)->left.load(std::memory_order_acquire); // pairs with release in read_control()
  }
  void read_reports() noexcept override { read_control(); }
  void malformed(int peer, const char* what) noexcept override;
  Peer* find(int rank) noexcept;
  void read_control() noexcept;
  void look_for_leavers() noexcept;
  void look_at_ports(std::uint64_t waited_ns) noexcept;
  bool has_no_link(OwnPort& own, std::uint64_t now_ns) noexcept;
  void take_word(int peer, std::span<const std::byte> bytes) noexcept;
  bool all_written() noexcept;

  VerbsPlace place_;
  VerbsHost* host_;
  VerbsSettings settings_;
  std::vector<std::unique_ptr<OwnPort>> own_ports_;
  const Membership* membership_ = nullptr;
  SlotMemory memory_; ///< memory of all endpoints
  RailWatch watch_{*this};
  std::vector<Peer> peers_;
  std::vector<int> peer_of_rank_;                 ///< index in peers_, −1 for none
  std::atomic<std::uint64_t> ports_looked_ns_{0}; ///< time of the last look at the ports
  Fd epoll_;
};

} // namespace whorl
