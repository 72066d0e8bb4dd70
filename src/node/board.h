#pragma once

#include <cstddef>

#include "base/membership.h"

namespace whorl {

/// Returns the bytes of a board for `ranks` ranks of one host, which is memory that all of them
/// share beside the FIFOs of a transport: the same amount for each rank, and 8 bytes for each pair
/// of ranks if they may share a device.
constexpr std::size_t board_bytes_for(std::size_t ranks) noexcept {
  return 4096 + ranks * 1024 + (ranks <= std::size_t{kMaxDeviceRanks} ? ranks * ranks * 8 : 0);
}

} // namespace whorl
