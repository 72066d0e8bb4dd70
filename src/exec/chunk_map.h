#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "schedule/schedule.h"

namespace whorl {

/// How a vector is cut into windows and chunks: the only place that knows about uneven ends.
///
/// A block has `count` elements. Window w covers elements [w·window, (w+1)·window) of *every*
/// block; chunk j of a block covers `chunk` elements from w·window + j·chunk on, fewer or none at
/// the end.
///
/// Where blocks differ in size, a block ends earlier than the largest one, whose windows and chunks
/// all of them have; then a schedule must have no scratch, whose chunks belong to no block.
struct ChunkMap {
  std::size_t count = 0;  ///< elements of a block
  std::size_t chunk = 0;  ///< elements of a full chunk
  std::size_t window = 0; ///< elements of a block in one window: chunks_per_block · chunk
  std::size_t windows = 1;
  std::uint32_t chunks_per_block = 1;

  /// A block that lies somewhere, in elements.
  struct Block {
    std::size_t begin = 0, count = 0;
  };
  /// Of the buffer that has a block for each rank, by rank; null: all have `count` elements, side
  /// by side. Outlives the operation.
  const Block* blocks = nullptr;
  Buffer blocks_in = Buffer::kInput; ///< that buffer; the other one has block `own` only
  std::uint32_t own = 0;

  /// Cuts so that no message of the schedule is larger than `message_bytes`. All ranks come to the
  /// same map, because all inputs are alike on all ranks.
  static Result<ChunkMap> make(const Schedule& schedule, std::size_t count,
                               std::size_t element_size, std::size_t message_bytes);

  /// Elements of one chunk.
  struct Range {
    std::size_t begin, size;
  };
  /// Chunk `index` (of any block) of window w; `begin` counts from the buffer's start.
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
  /// The same where there are `blocks`.
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

} // namespace whorl
