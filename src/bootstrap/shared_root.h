#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "bootstrap/root.h"

namespace whorl {

/// Value by which rank 0 tells the others of its root through a key-value space: the encoded id;
/// without a root as many zeros, the code and the reason, so that nobody waits for the id.
struct SharedRoot {
  static constexpr std::size_t kMaxBytes = 1024;
  std::array<std::byte, kMaxBytes> bytes{};
  std::size_t size = 0;

  std::span<const std::byte> value() const { return std::span(bytes).first(size); }
};

/// Starts a root, and writes what rank 0 tells of it to `out`, also if the start fails.
Status start_shared_root(RootScope scope, std::uint64_t timeout_ns, SharedRoot& out);
/// Returns the error of a rank 0 that has told of a failure; OK for any other value.
Status check_shared_root(std::span<const std::byte> value);

} // namespace whorl
