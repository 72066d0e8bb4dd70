#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/system.h"
#include "net/mesh.h"
#include "transports/tcp/endpoint.h"
#include "transports/tcp/tuning.h"
#include "transports/transport.h"

namespace whorl {

/// Transport over TCP: one control socket for each pair of ranks, which carries errors and goodbyes
/// and whose end means the death of the peer, and one data socket for each pair and channel. The
/// higher rank of a pair connects to the lower one.
class TcpTransport final : public Transport, private TcpFailureJudge {
 public:
  TcpTransport()
      : Transport({.name = "tcp", .slot_bytes = 512 * 1024, .polls_by_system_calls = true}) {}
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
  void notify_peers(const Status& comm_error) noexcept override;

  void block(std::uint64_t max_ns) noexcept override;
  void poll_failures(std::uint64_t waited_ns) noexcept override;

 private:
  struct Peer {
    int rank = -1;
    Fd control;
    std::vector<std::unique_ptr<TcpEndpoint>> endpoints;
    // The rest is guarded by state_mutex_.
    std::array<std::byte, sizeof(tcp::ControlHeader) + tcp::ControlHeader::kMaxTextBytes> frame{};
    std::size_t frame_bytes = 0;
    bool said_goodbye = false;
    bool control_ended = false;
    std::uint64_t data_lost_ns = 0; ///< time at which the first data socket ended; 0: none has
    int data_error = 0;
  };

  // Control sockets: control.cc.
  /// Turns on the probes that find a silent death; returns −errno if the kernel refuses.
  static int probe_silence(int control) noexcept;
  Progress connection_lost(int peer, int error) noexcept override;
  void malformed(int peer, const char* what) noexcept override;

  Status listen_for(const Membership& membership, std::span<const MeshExpected> expected);
  Status adopt(std::vector<MeshLink> links, std::span<const int> peers);
  Status watch(const Peer& peer);
  Peer* find(int rank) noexcept;
  void read_control(Peer& peer) noexcept;
  void take_frame(Peer& peer, const tcp::ControlHeader& header, std::string_view text) noexcept;
  void set_death_error(const Peer& peer, int error) noexcept;
  void set_error(Code code, std::string message) noexcept;
  void send_control(tcp::ControlKind kind, std::string_view text) noexcept;

  const Membership* membership_ = nullptr;
  TcpTuning tuning_;
  std::vector<Listener> bound_; ///< bound ports, from listen() to the end of connect()
  std::vector<Peer> peers_;
  std::vector<int> peer_of_rank_; ///< index in peers_, −1 for none
  std::byte* arena_ = nullptr;    ///< memory of all endpoints
  std::size_t arena_bytes_ = 0;
  // Edge-triggered: a socket is reported once for each arrival, whichever thread sleeps. A thread
  // that waits for a socket has seen it empty (or full) before it sleeps, so no arrival is missed.
  Fd control_epoll_; ///< the control sockets, so that poll_failures() is one call without news
  Fd full_epoll_;    ///< during a sleep: the sockets that have no room for queued messages
  Fd epoll_;         ///< the data sockets, control_epoll_ and full_epoll_
  std::mutex state_mutex_; ///< guard of the state that comes from control sockets
  /// Guard of writing control frames, one at a time, and of `connected_` and `notified_`.
  std::mutex notify_mutex_;
  bool connected_ = false; ///< whether control sockets may be written to
  bool notified_ = false;  ///< whether an error was sent
};

} // namespace whorl
