#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/membership.h"
#include "transports/verbs/device.h"
#include "transports/verbs/verbs.h"
#include "transports/verbs/wire.h"

namespace whorl::verbs {

/// Rail between two ranks: a port of each.
struct RailPorts {
  std::uint8_t own = 0, peers = 0; ///< places in the PortAddresses
  bool spare = false;              ///< whether it is used only when all others have failed
};

/// Chooses the ports of a rank for at most `most` rails, the most important first: those nearest to
/// the rank, ranks of a host in turn, then others as spares.
std::vector<VerbsPort> choose_ports(std::span<const VerbsPort> ports, const VerbsPlace& place,
                                    std::size_t most);

/// Reads the ports at the end of a rank's address. Returns none if there are none.
PortAddresses ports_of(const PeerInfo& info, std::size_t index) noexcept;

/// Returns the rails between two ranks, alike on both sides: each port of the lower rank with one
/// of the other in the same kind of network. Ports with the same number on their hosts belong
/// together, since each number may have a network of its own. Empty: they cannot be connected.
std::vector<RailPorts> rails_between(const PeerInfo& self, const PeerInfo& peer, std::size_t index);

} // namespace whorl::verbs
