#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace whorl::simulation {

inline constexpr std::size_t kMaxFibres = 8;
inline constexpr std::size_t kMaxLocations = 320; ///< atomic objects that a run may use

/// Knowledge of a fibre about the memory: what happened before its next access, by the rules of
/// C++. A release stores the writer's view with the value, an acquire joins that view to the
/// reader's.
struct View {
  /// Number of phases of each fibre that happened before: a plain access of a fibre in phase p did
  /// if `clock` is at least p. A fibre begins a phase with each atomic store.
  std::array<std::uint32_t, kMaxFibres> clock{};
  /// Index of the oldest store that may still be read, for each atomic object.
  std::array<std::uint16_t, kMaxLocations> oldest{};

  void join(const View& other, std::size_t locations) noexcept {
    for (std::size_t i = 0; i < kMaxFibres; ++i) clock[i] = std::max(clock[i], other.clock[i]);
    for (std::size_t i = 0; i < locations; ++i) oldest[i] = std::max(oldest[i], other.oldest[i]);
  }
};

} // namespace whorl::simulation
