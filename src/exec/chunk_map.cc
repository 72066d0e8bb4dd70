#include "exec/chunk_map.h"

#include <fmt/core.h>

namespace whorl {

Result<ChunkMap> ChunkMap::make(const Schedule& schedule, std::size_t count,
                                std::size_t element_size, std::size_t message_bytes) {
  const std::size_t largest = message_bytes / element_size / schedule.message_chunks;
  if (largest == 0) {
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("a slot of {} bytes cannot hold a message of {} chunks of {}-byte elements; "
                    "raise WHORL_SLOT_BYTES or choose another algorithm",
                    message_bytes, schedule.message_chunks, element_size));
  }
  // Chunks of whole cache lines, so that no two ranks write to one line at once.
  constexpr std::size_t kLine = 64;
  const std::size_t grain = std::min(largest, kLine / element_size);
  const std::size_t aligned = largest / grain * grain;

  ChunkMap map;
  map.count = count;
  map.chunks_per_block = schedule.chunks_per_block;
  const auto divide_up = [](std::size_t a, std::size_t b) { return a == 0 ? 0 : (a - 1) / b + 1; };
  // As few windows as possible, all of about the same size.
  const std::size_t windows =
      std::max<std::size_t>(1, divide_up(divide_up(count, map.chunks_per_block), aligned));
  const std::size_t even = divide_up(divide_up(count, windows), map.chunks_per_block);
  map.chunk = std::clamp(round_up(even, grain), grain, aligned);
  map.window = map.chunk * map.chunks_per_block;
  map.windows = std::max<std::size_t>(1, divide_up(count, map.window));
  return map;
}

std::size_t one_way_message_bytes(std::size_t bytes, std::size_t slot_bytes) noexcept {
  // More messages: the receiver begins earlier. Fewer: less time for each of them.
  constexpr std::size_t kMessages = 4, kSmallest = 16 * 1024, kLine = 64;
  if (slot_bytes <= kSmallest) return slot_bytes;
  return std::clamp(round_up(bytes / kMessages, kLine), kSmallest, slot_bytes);
}

} // namespace whorl
