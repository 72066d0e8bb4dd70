#pragma once

#include <bit>
#include <limits>
#include <vector>

#include "algorithms/shape.h"
#include "schedule/builder.h"
#include "schedule/schedule.h"

namespace whorl {

/// Number of partners that a lane can name.
inline constexpr int kMaxPeers = 255;
/// Number of chunks that a buffer can have.
inline constexpr int kMaxChunks = std::numeric_limits<std::uint16_t>::max();
/// Number of chunks of a lane in pipelined algorithms (chains and trees). More fill the pipeline
/// better; fewer make larger messages. Eight keep a tree of 16 ranks busy half of the time within
/// one window.
inline constexpr int kPipelineChunks = 8;

constexpr int floor_log2(int value) noexcept {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(value))) - 1;
}
constexpr int ceil_log2(int value) noexcept { return value <= 1 ? 0 : floor_log2(value - 1) + 1; }
constexpr bool is_power_of_two(int value) noexcept {
  return std::has_single_bit(static_cast<unsigned>(value));
}
/// Returns `value` modulo `modulus`, not negative.
constexpr int wrap(int value, int modulus) noexcept {
  const int rest = value % modulus;
  return rest < 0 ? rest + modulus : rest;
}

/// Returns all ranks but `rank`, ascending.
inline std::vector<int> other_ranks(int nranks, int rank) {
  std::vector<int> ranks;
  ranks.reserve(static_cast<std::size_t>(nranks));
  for (int i = 0; i < nranks; ++i) {
    if (i != rank) ranks.push_back(i);
  }
  return ranks;
}

/// Returns whether a buffer of `chunks` chunks for each rank and channel can be encoded.
inline bool chunks_fit(const Shape& shape, int chunks = 1) {
  return static_cast<long>(shape.nranks) * shape.channels * chunks <= kMaxChunks;
}
/// Returns whether a lane can name all other ranks at once.
inline bool peers_fit(const Shape& shape) { return shape.nranks - 1 <= kMaxPeers; }

/// Returns the bytes, divided by n, that are copied where relabel() has to keep blocks in scratch.
inline double sorted_blocks(const Shape& shape) { return shape.order.empty() ? 0 : 1; }

} // namespace whorl
