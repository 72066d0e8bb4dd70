#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "net/listener.h"
#include "net/mesh.h"

namespace whorl {

/// Ports at which the ranks of a communicator connect to each other over TCP. The higher rank of a
/// pair connects to the lower one.
class PeerPorts {
 public:
  /// Makes no port yet. `extra_bytes` is the number of bytes that the transport puts behind the
  /// addresses in its PeerInfo.
  explicit PeerPorts(std::size_t extra_bytes = 0) noexcept : extra_bytes_(extra_bytes) {}
  /// Binds ports, which refuse connections until connect(). Returns the rank's addresses for its
  /// PeerInfo, which with the transport's extra bytes have at most kMaxAddressBytes.
  Result<std::vector<std::byte>> bind();
  /// Returns the bound ports, from bind() to connect(); those without a socket share the one
  /// before.
  std::span<const Listener> bound() const noexcept { return bound_; }
  /// Returns whether two ranks have addresses as the transport with place `index`.
  static bool have_addresses(const PeerInfo& self, const PeerInfo& peer,
                             std::size_t index) noexcept;
  /// Returns what bind() has returned on a rank, without loopback unless there is nothing else.
  Result<std::vector<SocketAddress>> outer_addresses(const PeerInfo& info, std::size_t index) const;

  /// Connections to each peer, besides the control socket.
  struct Lanes {
    int data = 0;           ///< number of data sockets to each peer
    std::string congestion; ///< TCP congestion control; empty: the system's
    bool encrypts = false;  ///< whether all connections are encrypted; alike on all ranks
  };
  /// Makes a control socket and data sockets to all of `peers`, each of which does the same at the
  /// same time, and closes the ports. Listens only where a peer is going to connect. Waits at most
  /// Membership::timeout_ns; an error names the peer.
  Result<std::vector<MeshLink>> connect(const Membership& membership, std::span<const int> peers,
                                        std::size_t index, const Lanes& lanes);

 private:
  Status listen_for(const Membership& membership, std::span<const MeshExpected> expected);

  std::size_t extra_bytes_;
  std::vector<Listener> bound_;
};

} // namespace whorl
