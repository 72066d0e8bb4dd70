#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "net/address.h"

namespace whorl {

/// What a unique id says: who we are, and where the root of the rendezvous listens.
struct UniqueId {
  static constexpr std::size_t kBytes = 128;
  static constexpr std::size_t kMaxAddresses = 3;

  Identity identity;
  std::vector<SocketAddress> addresses; ///< 1 to 3, best first

  /// Version, job, addresses, secret, and the first half of the SHA-256 of all that.
  Result<std::array<std::byte, kBytes>> encode() const;
  /// The bytes come from the user, who may have lost or mixed some.
  static Result<UniqueId> decode(std::span<const std::byte, kBytes> bytes);
};

} // namespace whorl
