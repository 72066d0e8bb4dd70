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
struct ChunkMap {
  std::size_t count = 0;  ///< elements of a block
  std::size_t chunk = 0;  ///< elements of a full chunk
  std::size_t window = 0; ///< elements of a block in one window: chunks_per_block · chunk
  std::size_t windows = 1;
  std::uint32_t chunks_per_block = 1;

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
  std::size_t begin(std::size_t w, std::uint32_t index) const noexcept {
    return range(w, index).begin;
  }
  std::size_t size(std::size_t w, std::uint32_t index) const noexcept {
    return range(w, index).size;
  }
};

} // namespace whorl
