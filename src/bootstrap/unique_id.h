#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "net/address.h"

namespace whorl {

/// Contents of a unique id: job and secret of a rendezvous, and the addresses of its root.
struct UniqueId {
  static constexpr std::size_t kBytes = 128;
  static constexpr std::size_t kMaxAddresses = 3;

  Identity identity;
  std::vector<SocketAddress> addresses; ///< 1 to 3, best first

  /// Encodes version, job, addresses, secret, and the first half of the SHA-256 of these.
  Result<std::array<std::byte, kBytes>> encode() const;
  /// Decodes what encode() returned. The bytes come from the user and may be damaged, which is an
  /// error.
  static Result<UniqueId> decode(std::span<const std::byte, kBytes> bytes);
};

} // namespace whorl
