#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "transports/control/links.h"
#include "transports/control/ports.h"
#include "transports/transport.h"

namespace whorl {

/// Base of the transports between hosts: ranks meet at ports, and a control socket of each pair
/// carries what ranks tell each other besides messages.
class NetworkTransport : public Transport {
 public:
  void tell_stuck(const StuckOperation& operation,
                  std::span<const std::uint32_t> sent) noexcept override {
    control_.tell_stuck(operation, sent);
  }
  std::optional<StuckOperation> find_stuck(int peer) noexcept override {
    return control_.find_stuck(peer);
  }
  bool is_lost(int peer) noexcept override { return control_.is_lost(peer); }
  Result<std::vector<SocketAddress>> outer_addresses(const PeerInfo& info,
                                                     std::size_t index) const override {
    return ports_.outer_addresses(info, index);
  }
  void notify_peers(const Status& comm_error) noexcept override {
    control_.notify_peers(comm_error);
  }

 protected:
  /// Prepares ports; `extra_bytes` is that of PeerPorts.
  explicit NetworkTransport(const TransportTraits& traits, std::size_t extra_bytes = 0) noexcept
      : Transport(traits), ports_(extra_bytes) {}

  PeerPorts ports_;
  ControlLinks control_;
};

} // namespace whorl
