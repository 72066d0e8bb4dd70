#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "algorithms/shape.h"
#include "base/status.h"

namespace whorl {

/// Sizes that the memory of a communicator depends on; alike on all ranks.
struct MemorySizes {
  std::uint32_t slots = 0;
  std::uint32_t slot_bytes = 0;
  std::uint32_t channels = 0; ///< number of channels, with the one for sends and receives
  std::uint32_t unused = 0;
  /// Bytes that a rank may allocate for scratch chunks; UINT64_MAX without a budget.
  std::uint64_t workspace_bytes = UINT64_MAX;
};

/// Returns the largest sizes, none above `wanted`, with which everything that a rank may ever
/// connect and allocate fits into `budget` bytes (0: no limit). First reduces the channels that no
/// schedule uses, then the size of slots to 8 KiB, then their number, then their size again.
/// `endpoints(slots, slot_bytes)` is the memory of one channel's endpoints to all peers, on the
/// rank where it is largest; `scratch_slots` the need of schedules, see scratch_slots(). The error
/// names the smallest sufficient budget.
Result<MemorySizes> fit_budget(std::uint64_t budget, const MemorySizes& wanted, const Shape& shape,
                               std::size_t scratch_slots,
                               const std::function<std::size_t(int, std::size_t)>& endpoints);

/// Returns the sizes that come closest to `bytes` but need not fit: reduced in the same order, at
/// most down to the smallest that the ranks can work with.
MemorySizes shrink_towards(std::uint64_t bytes, const MemorySizes& wanted, const Shape& shape,
                           const std::function<std::size_t(int, std::size_t)>& endpoints);

/// Returns the size of a slot below which an algorithm may not work: one that packs a block of
/// every other rank into a message needs room for an element of each.
std::size_t least_slot_bytes(int nranks) noexcept;

/// Returns how many slots' worth of scratch the algorithms need at most for a shape.
std::size_t scratch_slots(const Shape& shape);

} // namespace whorl
