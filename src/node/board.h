#pragma once

#include <cstddef>

namespace whorl {

/// Bytes of a board for each rank, and for every two of up to kBoardRanksWithPairs ranks that may
/// share devices.
inline constexpr std::size_t kBoardBytesOfRank = 1024, kBoardBytesOfPair = 64;
inline constexpr std::size_t kBoardRanksWithPairs = 64;

/// Returns the bytes of a board for `ranks` ranks of one host, which is memory that all of them
/// share beside the FIFOs of a transport. `devices`: the ranks may share devices.
constexpr std::size_t board_bytes_for(std::size_t ranks, bool devices) noexcept {
  const std::size_t pairs = devices && ranks <= kBoardRanksWithPairs ? ranks * ranks : 0;
  return 12 * 1024 + ranks * kBoardBytesOfRank + pairs * kBoardBytesOfPair;
}

} // namespace whorl
