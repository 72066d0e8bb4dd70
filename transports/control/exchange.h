#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "net/mesh.h"

namespace whorl {

/// Largest number of bytes that a rank sends to one peer by exchange_blobs().
inline constexpr std::size_t kMaxBlobBytes = 64 * 1024;

/// Exchanges bytes with the peers of the control sockets among `links` before these sockets are
/// used for anything else: sends `mine[i]` to the peer of the i-th control socket, and returns what
/// each of these peers has sent, in the same order. For addresses that do not fit into a PeerInfo.
/// Waits at most Membership::timeout_ns without progress; an error names the peer.
Result<std::vector<std::vector<std::byte>>> exchange_blobs(
    const Membership& membership, std::span<MeshLink> links,
    std::span<const std::vector<std::byte>> mine);

} // namespace whorl
