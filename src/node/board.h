#pragma once

#include <cstddef>

namespace whorl {

/// Bytes of a board for `ranks` ranks of one host: memory that all of them share beside what they
/// send messages through. As much for each rank, and 8 bytes for each pair of those that may share
/// a device.
constexpr std::size_t board_bytes_for(std::size_t ranks) noexcept {
  constexpr std::size_t kMostOnDevices = 64;
  return 4096 + ranks * 1024 + (ranks <= kMostOnDevices ? ranks * ranks * 8 : 0);
}

} // namespace whorl
