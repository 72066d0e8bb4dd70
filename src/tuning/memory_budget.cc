#include "tuning/memory_budget.h"

#include <fmt/core.h>

#include <algorithm>

#include "algorithms/algorithm.h"
#include "base/bytes.h"

namespace whorl {
namespace {

/// Returns the least useful size of a slot: below it, messages cost more than their payload.
std::uint32_t min_slot_bytes(const Shape& shape) {
  return static_cast<std::uint32_t>(std::max<std::size_t>(1024, least_slot_bytes(shape.nranks)));
}

} // namespace

std::size_t least_slot_bytes(int nranks) noexcept {
  return round_up(static_cast<std::size_t>(nranks) * sizeof(double), 64);
}

std::size_t scratch_slots(const Shape& shape) {
  // The ranks of a tree need different amounts; these include the ones next to the root.
  constexpr int kRanks = 16;
  std::size_t most = 0;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (!algorithm.supports(shape)) continue;
    for (int i = 0; i < std::min(kRanks, shape.nranks); ++i) {
      const int rank =
          static_cast<int>(std::int64_t{i} * shape.nranks / std::min(kRanks, shape.nranks));
      const Schedule schedule = build_schedule(algorithm, shape, rank);
      const std::size_t chunks = std::max<std::size_t>(1, schedule.message_chunks);
      most = std::max(most, (schedule.scratch.size() + chunks - 1) / chunks);
    }
  }
  return most;
}

namespace {

/// Reduces sizes until `needed` of them is at most `budget`, or until they are minimal.
template <class Needed>
MemorySizes shrink(std::uint64_t budget, const MemorySizes& wanted, const Shape& shape,
                   const Needed& needed) {
  MemorySizes sizes = wanted;
  const auto min_channels = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      wanted.channels, static_cast<std::uint64_t>(std::max(2, shape.channels)) + 1));
  const std::uint32_t min_bytes = std::min(wanted.slot_bytes, min_slot_bytes(shape));
  // Slots of this size use pages and caches well: fewer slots before smaller ones.
  const std::uint32_t good_bytes =
      std::max(min_bytes, std::min<std::uint32_t>(wanted.slot_bytes, 8192));
  const auto halve = [&](std::uint32_t least) {
    sizes.slot_bytes = std::max(least, sizes.slot_bytes / 2 / 64 * 64);
  };
  while (needed(sizes) > budget) {
    if (sizes.channels > min_channels) {
      --sizes.channels;
    } else if (sizes.slot_bytes > good_bytes) {
      halve(good_bytes);
    } else if (sizes.slots > 2) {
      --sizes.slots;
    } else if (sizes.slot_bytes > min_bytes) {
      halve(min_bytes);
    } else {
      break;
    }
  }
  return sizes;
}

/// Returns the bytes of all endpoints of a rank.
std::uint64_t fifo_bytes(const MemorySizes& sizes,
                         const std::function<std::size_t(int, std::size_t)>& endpoints) {
  return std::uint64_t{sizes.channels} * endpoints(static_cast<int>(sizes.slots), sizes.slot_bytes);
}

} // namespace

Result<MemorySizes> fit_budget(std::uint64_t budget, const MemorySizes& wanted, const Shape& shape,
                               std::size_t scratch,
                               const std::function<std::size_t(int, std::size_t)>& endpoints) {
  if (budget == 0) return wanted;
  const auto needed = [&](const MemorySizes& sizes) {
    return fifo_bytes(sizes, endpoints) + std::uint64_t{scratch} * sizes.slot_bytes;
  };
  MemorySizes sizes = shrink(budget, wanted, shape, needed);
  if (const std::uint64_t least = needed(sizes); least > budget) {
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("a memory budget of {} bytes is too small for {} ranks: with {} channels of {} "
                    "slots of {} bytes, the smallest, a rank needs {} bytes. Raise "
                    "WHORL_MEMORY_BUDGET or config.memoryBudget to at least that",
                    budget, shape.nranks, sizes.channels, sizes.slots, sizes.slot_bytes, least));
  }
  sizes.workspace_bytes = budget - fifo_bytes(sizes, endpoints);
  return sizes;
}

MemorySizes shrink_towards(std::uint64_t bytes, const MemorySizes& wanted, const Shape& shape,
                           const std::function<std::size_t(int, std::size_t)>& endpoints) {
  return shrink(bytes, wanted, shape,
                [&](const MemorySizes& sizes) { return fifo_bytes(sizes, endpoints); });
}

} // namespace whorl
