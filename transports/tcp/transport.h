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

/// Connects ranks by TCP: one control socket for each pair of ranks, which carries verdicts and
/// goodbyes and whose end means death, and one data socket for each pair and channel.
///
/// Both ranks of a pair know who connects: the higher rank to the lower one.
class TcpTransport final : public Transport, private TcpFailureJudge {
 public:
  TcpTransport() = default;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;
  /// Says goodbye and closes everything; does not wait. An operation is complete only when all that
  /// it has sent is in the kernel, which delivers it after this.
  ~TcpTransport() override;

  std::string_view name() const noexcept override { return "tcp"; }
  /// Only takes ports: they open in connect(), and only where a peer is going to connect.
  Result<std::vector<std::byte>> listen(const Identity& identity) override;
  Reach reach(const RankCard& self, const RankCard& peer, std::size_t index) const override;
  std::size_t slot_bytes() const noexcept override { return 512 * 1024; }
  bool polls_by_system_calls() const noexcept override { return true; }
  Status connect(const Membership& membership, std::span<const int> peers,
                 std::size_t index) override;
  Endpoint* endpoint(int peer, int channel) noexcept override;
  std::size_t endpoint_bytes(int slots, std::size_t slot_bytes) const noexcept override;
  TransportMemory memory() const noexcept override;
  void tell(const Status& verdict) noexcept override;

  void nap(std::uint64_t max_ns) noexcept override;
  void look_around(std::uint64_t waited_ns) noexcept override;

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
    int control_error = 0;          ///< −errno that ended it, 0 for a close
    std::uint64_t data_lost_ns = 0; ///< when the first data socket ended; 0: none
    int data_error = 0;
  };

  Progress connection_lost(int peer, int error) noexcept override;
  void malformed(int peer, const char* what) noexcept override;

  Status listen_for(const Membership& membership, std::span<const MeshExpected> expected);
  Status adopt(std::vector<MeshLink> links, std::span<const int> peers);
  Status watch(const Peer& peer);
  Peer* find(int rank) noexcept;
  void read_control(Peer& peer) noexcept;
  void take_frame(Peer& peer, const tcp::ControlHeader& header, std::string_view text) noexcept;
  void raise_death(const Peer& peer, int error) noexcept;
  void raise(Code code, std::string message) noexcept;
  void send_control(tcp::ControlKind kind, std::string_view text) noexcept;

  const Membership* membership_ = nullptr;
  TcpTuning tuning_;
  std::vector<Listener> bound_; ///< from listen() until connect() is over
  std::vector<Peer> peers_;
  std::vector<int> peer_of_rank_; ///< index in peers_, −1 for none
  std::byte* arena_ = nullptr;    ///< memory of all endpoints
  std::size_t arena_bytes_ = 0;
  // Edge-triggered: a socket is reported once for each arrival, whoever naps. Whoever waits for a
  // socket has seen it empty (or full) before it naps, so no arrival is missed.
  Fd control_epoll_; ///< the control sockets, so that look_around() is one call when all is quiet
  Fd full_epoll_;    ///< during a nap: sockets that have no room for what is queued
  Fd epoll_;         ///< the data sockets and the two others
  std::mutex state_mutex_; ///< state of peers that comes from their control sockets
  std::mutex tell_mutex_;  ///< one control frame at a time; also makes connect() safe with tell()
  bool connected_ = false; ///< guarded by tell_mutex_: control sockets may be written to
  bool told_ = false;      ///< guarded by tell_mutex_: a verdict was sent
};

std::unique_ptr<Transport> make_tcp_transport();

} // namespace whorl
