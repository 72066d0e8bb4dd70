#pragma once

#include <cstddef>

namespace whorl {

/// Returns the bytes of a board for `ranks` ranks of one host, which is memory that all of them
/// share beside the FIFOs of a transport: the same amount for each rank.
constexpr std::size_t board_bytes_for(std::size_t ranks) noexcept {
  return 12 * 1024 + ranks * 1024;
}

} // namespace whorl
