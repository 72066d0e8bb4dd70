#pragma once

// Builders of the hierarchical algorithm (hierarchical.cc), and what they share.

#include <algorithm>
#include <cstdint>

#include "algorithms/algorithm.h"
#include "algorithms/embed.h"
#include "schedule/schedule.h"

namespace whorl {

/// Builds an allreduce.
Schedule build_hierarchical_allreduce(const Shape& shape, int rank);
/// Builds a reduce-scatter or an all-gather.
Schedule build_hierarchical_blocks(const Shape& shape, int rank, Collective collective);
/// Builds a broadcast or a reduce.
Schedule build_hierarchical_rooted(const Shape& shape, int rank, Collective collective);

/// Returns a schedule without lanes.
inline Schedule start_schedule(const Shape& shape, int rank, int chunks_per_block) {
  Schedule schedule;
  schedule.rank = rank;
  schedule.nranks = shape.nranks;
  schedule.chunks_per_block = static_cast<std::uint16_t>(chunks_per_block);
  return schedule;
}

/// Makes room for messages of `chunks` chunks.
inline void grow_message(Schedule& schedule, int chunks) {
  schedule.message_chunks =
      static_cast<std::uint16_t>(std::max<int>(schedule.message_chunks, chunks));
}

/// Adds `count` scratch chunks of index `holds` and returns the first one.
inline int add_scratch(Schedule& schedule, int count, int holds) {
  const auto first = schedule.scratch.size();
  schedule.scratch.resize(first + static_cast<std::size_t>(count),
                          static_cast<std::uint16_t>(holds));
  return static_cast<int>(first);
}

/// Adds the scratch of a part to a schedule whose only block has the part's vector from chunk
/// `base` on.
inline Location add_scratch_of(Schedule& schedule, const Schedule& part, int base, int scale) {
  const Location place{Buffer::kScratch, static_cast<int>(schedule.scratch.size()), scale};
  for (const int label : scratch_labels(part)) {
    for (int i = 0; i < scale; ++i) add_scratch(schedule, 1, base + label * scale + i);
  }
  return place;
}

} // namespace whorl
