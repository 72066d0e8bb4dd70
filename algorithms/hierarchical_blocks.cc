// The hierarchical allreduce, reduce-scatter and all-gather, see hierarchical.cc.
#include <algorithm>
#include <utility>

#include "algorithms/hierarchical_build.h"
#include "algorithms/levels.h"
#include "algorithms/uneven.h"

namespace whorl {
namespace {

/// Returns the number of lanes of a reduce-scatter or all-gather. The chunks of one lane are one
/// block apart, so there is just one lane if a level sends several blocks as one message.
int block_lanes(const Shape& shape, const std::vector<Schedule>& parts) {
  return std::any_of(parts.begin(), parts.end(), has_long_messages) ? 1 : shape.channels;
}

} // namespace

Schedule build_hierarchical_allreduce(const Shape& shape, int rank) {
  if (!shape.groups.empty()) return build_uneven(shape, rank, Collective::kAllReduce);
  const std::vector<Level> levels = levels_of(shape);
  const std::vector<Phase> phases = phases_of(levels, Collective::kAllReduce);
  std::vector<Schedule> parts;
  for (const Phase& phase : phases) parts.push_back(part_of(phase, rank));

  // Numbers of chunks of the vector that is left at each level; at the first, of a lane's vector.
  std::vector<int> sizes(levels.size());
  sizes.back() = parts[levels.size() - 1].chunks_per_block;
  for (std::size_t j = levels.size() - 1; j > 0; --j) {
    sizes[j - 1] = sizes[j] * levels[j - 1].size;
  }
  Schedule schedule = start_schedule(shape, rank, sizes[0] * shape.channels);
  schedule.input_chunks = schedule.output_chunks = schedule.chunks_per_block;
  for (int c = 0; c < shape.channels; ++c) {
    Lane lane{.channel = static_cast<std::uint16_t>(c)};
    std::vector<int> bases{c * sizes[0]}; // first chunk of the vector that is left at each level
    for (std::size_t j = 0; j + 1 < levels.size(); ++j) {
      bases.push_back(bases[j] + levels[j].of(rank) * sizes[j + 1]);
    }
    for (std::size_t i = 0; i < phases.size(); ++i) {
      const auto j = static_cast<std::size_t>(phases[i].level - levels.data());
      const bool last = phases[i].collective == Collective::kAllReduce;
      const bool gathers = phases[i].collective == Collective::kAllGather;
      const int block = last ? bases[j] : bases[j + 1];
      const int scale = last ? 1 : sizes[j + 1] / parts[i].chunks_per_block;
      const Buffer from = i == 0 ? Buffer::kInput : Buffer::kOutput;
      embed(parts[i],
            {.ranks = phases[i].level->group(rank),
             .input = {from, gathers ? block : bases[j], scale},
             .output = {Buffer::kOutput, gathers ? bases[j] : block, scale},
             .scratch = add_scratch_of(schedule, parts[i], bases[j], scale),
             .scale = scale,
             .complete = last},
            lane);
      grow_message(schedule, parts[i].message_chunks * scale);
    }
    schedule.lanes.push_back(std::move(lane));
  }
  return schedule;
}

// `many` chunks are in the buffer with a block for each rank.
Schedule build_hierarchical_blocks(const Shape& shape, int rank, Collective collective) {
  if (!shape.groups.empty()) return build_uneven(shape, rank, collective);
  const bool scatters = collective == Collective::kReduceScatter;
  const std::vector<Level> levels = levels_of(shape);
  const std::vector<Phase> phases = phases_of(levels, collective);
  std::vector<Schedule> parts;
  for (const Phase& phase : phases) parts.push_back(part_of(phase, rank));
  const int lanes = block_lanes(shape, parts);

  Schedule schedule = start_schedule(shape, rank, lanes);
  const auto one = static_cast<std::uint16_t>(lanes);
  const auto many = static_cast<std::uint16_t>(lanes * shape.nranks);
  schedule.input_chunks = scatters ? many : one;
  schedule.output_chunks = scatters ? one : many;
  for (const Schedule& part : parts) grow_message(schedule, part.message_chunks);

  for (int c = 0; c < lanes; ++c) {
    Lane lane{.channel = static_cast<std::uint16_t>(c)};
    // Locations of the blocks that are left above each level: all blocks below level 0, this rank's
    // above the last one.
    std::vector<Location> blocks{{scatters ? Buffer::kInput : Buffer::kOutput, c, lanes}};
    std::vector<int> groups; // number of groups of contiguous blocks, for each level
    int left = shape.nranks;
    for (const Level& level : levels) {
      left /= level.size;
      groups.push_back(left);
      if (left > 1) blocks.push_back({Buffer::kScratch, add_scratch(schedule, left, c), 1});
    }
    blocks.push_back({scatters ? Buffer::kOutput : Buffer::kInput, c, lanes});

    for (std::size_t i = 0; i < phases.size(); ++i) {
      const auto j = static_cast<std::size_t>(phases[i].level - levels.data());
      const int size = levels[j].size;
      const int scratch = add_scratch(schedule, static_cast<int>(parts[i].scratch.size()), c);
      for (int group = 0; group < groups[j]; ++group) {
        Location below = blocks[j], above = blocks[j + 1];
        below.base += group * size * below.stride;
        above.base += group * above.stride;
        embed(parts[i],
              {.ranks = levels[j].group(rank),
               .input = scatters ? below : above,
               .output = scatters ? above : below,
               .scratch = {Buffer::kScratch, scratch, 1},
               .complete = j + 1 == levels.size()},
              lane);
      }
    }
    schedule.lanes.push_back(std::move(lane));
  }
  return schedule;
}

} // namespace whorl
