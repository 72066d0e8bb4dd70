#pragma once

#include <type_traits>

namespace whorl::simulation {

/// Number of the planted bug that is on, as plant.py numbers them from 1; 0: none.
inline int planted_bug = 0; // NOLINT: there is one thread

constexpr bool planted(int number) noexcept {
  return !std::is_constant_evaluated() && planted_bug == number;
}

} // namespace whorl::simulation
