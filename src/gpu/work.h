#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/stop_words.h"
#include "kernels/convert.h"

namespace whorl::gpu {

inline constexpr int kMaxBuffers = 64;
inline constexpr int kMaxSegments = 64;
/// Largest number of threads of a block of every kernel.
inline constexpr int kThreads = 512;

/// Range of elements to be combined: the same elements of some consecutive sources, to the same
/// place of some consecutive destinations.
struct Segment {
  std::uint64_t source_offset = 0; ///< offset in bytes from the start of every source
  std::uint64_t destination_offset = 0;
  std::uint64_t count = 0;       ///< number of elements
  std::uint32_t first_block = 0; ///< number of the first block of the launch; set by divide()
  std::uint8_t first_source = 0;
  std::uint8_t sources = 0; ///< number, at least 1
  std::uint8_t first_destination = 0;
  std::uint8_t destinations = 0; ///< number, at least 1
  /// Alignment of the addresses; set by align(). kVector: all equal modulo 16 and each to an
  /// element; kElement: each to an element; kByte: none. Only with kByte are elements moved one by
  /// one.
  enum class Access : std::uint8_t { kByte, kElement, kVector };
  Access access = Access::kByte;
};

/// Work of one launch: for each segment,
///     destinations[i] = sources[i] ⊕ sources[i] ⊕ …        i < count
/// combined from the first source to the last, rounded once. Work is the parameter of the kernels,
/// so it is kept below the 4 KiB that every device allows. A destination may be a source at the
/// same place, and overlaps nothing otherwise.
///
/// The collectives of ranks whose memory one device reaches are such a launch:
///     allreduce       1 segment, N sources, N destinations
///     reduce-scatter  N segments, N sources, 1 destination
///     all-gather      N segments, 1 source, N destinations
///     all-to-all      N² segments, 1 source, 1 destination
struct Work {
  const std::byte* sources[kMaxBuffers];
  std::byte* destinations[kMaxBuffers];
  Segment segments[kMaxSegments];
  std::int32_t n_segments = 0;
  std::int32_t divisor = 1; ///< divisor of sums: above 1 divides, see ReduceKernel
  /// Words that cancel the launch once they are not 0, because the memory may be gone; or null.
  const StopWords* cancelled = nullptr;
};
static_assert(sizeof(Work) <= 4096);

/// Sets `access` of all segments for elements of `element_size` bytes.
void align(Work& work, std::size_t element_size) noexcept;
/// Returns the largest number of sources of a segment.
int max_sources(const Work& work) noexcept;

/// Size of a launch. Segments that have equally many blocks have a row each, so that no block needs
/// to look for its segment; otherwise all blocks are in one row.
struct Grid {
  unsigned blocks = 1, rows = 1, threads = 1; ///< numbers of blocks of a row, rows, threads
};
/// Divides the blocks of a launch among the segments, by their bytes, and sets `first_block` of
/// each. Gives each vector a thread as long as the device has room for `max_blocks` blocks; spreads
/// small work over many small blocks. Each segment has a block at least, so there may be more.
Grid divide(Work& work, std::size_t element_size, unsigned max_blocks) noexcept;

/// Segment of a block of a launch, and the blocks that share the segment.
struct Share {
  std::uint32_t segment;
  std::uint32_t index, blocks; ///< number of the block among those of the segment
};
/// Finds the share of block `block` of a row; divide() has set the segments.
WHORL_HOST_DEVICE Share share_of(const Work& work, Grid grid, std::uint32_t block,
                                 std::uint32_t row) {
  if (grid.rows > 1) return {row, block, grid.blocks};
  const auto n = static_cast<std::uint32_t>(work.n_segments);
  std::uint32_t segment = 0;
  for (std::uint32_t step = kMaxSegments / 2; n > 1 && step > 0; step /= 2) {
    const std::uint32_t next = segment + step;
    if (next < n && work.segments[next].first_block <= block) segment = next;
  }
  const std::uint32_t first = work.segments[segment].first_block;
  const std::uint32_t end = segment + 1 < n ? work.segments[segment + 1].first_block : grid.blocks;
  return {segment, block - first, end - first};
}

} // namespace whorl::gpu
