#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "base/types.h"

namespace whorl {

/// Returns the collective that a user names; nothing if there is none of that name. Underscores do
/// not matter: "all_reduce", as the perf programs and nccl-tests spell it, is "allreduce".
constexpr std::optional<Collective> find_collective(std::string_view word) noexcept {
  const auto matches = [word](std::string_view name) {
    std::size_t at = 0;
    for (const char c : word) {
      if (c == '_') continue;
      if (at == name.size() || name[at] != c) return false;
      ++at;
    }
    return at == name.size();
  };
  for (int c = 0; c < kNumCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    if (matches(name_of(collective))) return collective;
  }
  return std::nullopt;
}

} // namespace whorl
