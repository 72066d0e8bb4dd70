#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "algorithms/shape.h"
#include "base/status.h"

namespace whorl {

/// What the memory of a communicator depends on; alike on all ranks.
struct MemorySizes {
  std::uint32_t slots = 0;
  std::uint32_t slot_bytes = 0;
  std::uint32_t channels = 0; ///< with the one for sends and receives
  std::uint32_t unused = 0;
  /// What a rank may allocate for scratch chunks; UINT64_MAX without a budget.
  std::uint64_t workspace_bytes = UINT64_MAX;
};

/// The largest sizes, none above `wanted`, with which everything that a rank may ever connect and
/// allocate fits into `budget` bytes (0: no limit). Channels that no schedule uses are given up
/// first, then the size of slots, then their number. `endpoints(slots, slot_bytes)` is the memory
/// of one channel's endpoints to all peers, on the rank where it is largest; `scratch_slots` what
/// schedules need, see scratch_slots(). The error names the smallest budget that would do.
Result<MemorySizes> fit_budget(std::uint64_t budget, const MemorySizes& wanted, const Shape& shape,
                               std::size_t scratch_slots,
                               const std::function<std::size_t(int, std::size_t)>& endpoints);

/// The sizes that come closest to it where nothing has to fit: shrunk in the same order, at most
/// down to the smallest that the ranks can work with.
MemorySizes shrink_towards(std::uint64_t bytes, const MemorySizes& wanted, const Shape& shape,
                           const std::function<std::size_t(int, std::size_t)>& endpoints);

/// How many slots' worth of scratch the algorithms need at most for a shape.
std::size_t scratch_slots(const Shape& shape);

} // namespace whorl
