#pragma once

#include <cstdint>
#include <vector>

#include "comm/setup.h"

namespace whorl {

/// Version of the bytes that ranks exchange before they are connected, and of their messages.
inline constexpr std::uint32_t kWireVersion = 11;

/// Makes this rank's PeerInfo; the transports of `setup` begin to listen.
Result<PeerInfo> make_peer_info(Setup& setup, const Identity& identity, int rank);
/// Checks the PeerInfos and makes the membership of `setup` from them. Membership::slot_bytes is 0
/// if no rank asks for a size.
Status make_membership(Setup& setup, std::vector<PeerInfo> peers, const Identity& identity,
                       int rank);

} // namespace whorl
