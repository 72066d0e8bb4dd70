#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "schedule/schedule.h"

namespace whorl {

/// Division of a vector into windows and chunks: the only place that knows about uneven ends.
///
/// A block has `count` elements. Window w covers elements [w·window, (w+1)·window) of *every*
/// block; chunk j of a block covers `chunk` elements from w·window + j·chunk on, fewer or none at
/// the end.
///
/// Blocks of different sizes all have the windows and chunks of the largest block, and smaller
/// blocks end earlier; the schedule must then have no scratch, whose chunks belong to no block.
struct ChunkMap {
  std::size_t count = 0;  ///< number of elements of a block
  std::size_t chunk = 0;  ///< number of elements of a full chunk
  std::size_t window = 0; ///< number of elements of a block in one window: chunks_per_block · chunk
  std::size_t windows = 1;
  std::uint32_t chunks_per_block = 1;

  /// Place of a block in a buffer, in elements.
  struct Block {
    std::size_t begin = 0, count = 0;
  };
  /// Blocks of the buffer that has one for each rank, by rank; null: all have `count` elements,
  /// side by side. Must outlive the operation.
  const Block* blocks = nullptr;
  Buffer blocks_in = Buffer::kInput; ///< buffer with `blocks`; the other one has block `own` only
  std::uint32_t own = 0;

  /// Makes a map in which no message of the schedule is larger than `message_bytes`. All ranks make
  /// the same map, because the arguments are equal on all ranks.
  static Result<ChunkMap> make(const Schedule& schedule, std::size_t count,
                               std::size_t element_size, std::size_t message_bytes);

  /// Elements of one chunk.
  struct Range {
    std::size_t begin, size;
  };
  /// Returns chunk `index` (of any block) of window w; `begin` counts from the buffer's start.
  Range range(std::size_t w, std::uint32_t index) const noexcept {
    std::size_t before = 0; // elements of earlier blocks
    if (index >= chunks_per_block) {
      before = index / chunks_per_block * count;
      index %= chunks_per_block;
    }
    const std::size_t first = w * window + index * chunk;
    const std::size_t begin = std::min(count, first);
    return {before + begin, std::min(count, first + chunk) - begin};
  }
  /// Returns chunk `index` of window w where `blocks` is not null.
  Range range(Buffer buffer, std::size_t w, std::uint32_t index) const noexcept {
    const bool all = buffer == blocks_in;
    const Block& block = blocks[all ? index / chunks_per_block : own];
    const std::size_t first = w * window + index % chunks_per_block * chunk;
    const std::size_t begin = std::min(block.count, first);
    return {(all ? block.begin : 0) + begin, std::min(block.count, first + chunk) - begin};
  }
  std::size_t begin(std::size_t w, std::uint32_t index) const noexcept {
    return range(w, index).begin;
  }
  std::size_t size(std::size_t w, std::uint32_t index) const noexcept {
    return range(w, index).size;
  }
};

/// Returns the size that no message may exceed if a vector of `bytes` goes in one direction,
/// through slots of `slot_bytes`: then the receiver takes one message while the sender makes the
/// next one.
std::size_t one_way_message_bytes(std::size_t bytes, std::size_t slot_bytes) noexcept;

} // namespace whorl
