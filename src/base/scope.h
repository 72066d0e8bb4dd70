#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace whorl {

/// Part of a job that ranks have in common, from the smallest part of a job to the largest.
enum class Scope : std::uint8_t {
  kCache,   ///< a last-level cache
  kHost,    ///< a host
  kLeaf,    ///< the switch above their hosts
  kPod,     ///< the group of switches above that
  kNetwork, ///< nothing smaller than the network
};
inline constexpr std::size_t kScopes = 5;

constexpr std::string_view name_of(Scope scope) noexcept {
  constexpr std::string_view kNames[] = {"cache", "host", "leaf", "pod", "network"};
  return kNames[static_cast<std::size_t>(scope)];
}

} // namespace whorl
