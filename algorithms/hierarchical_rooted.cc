// The hierarchical broadcast and reduce, see hierarchical.cc.
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "algorithms/groups.h"
#include "algorithms/hierarchical_build.h"
#include "algorithms/levels.h"

namespace whorl {
namespace {

/// Broadcast or reduce of one level, as one rank sees it.
struct Line {
  const Algorithm* algorithm;
  int most;             ///< number of ranks in the largest group of the level
  int nranks, root, at; ///< number of ranks of this one's group; root and this rank among them
  std::vector<int> ranks;
  bool takes_part; ///< whether this rank has to do with the vector in this level
  bool outermost;
};

/// Returns the levels in the order of the phases. A rank takes part in a level if it is in line
/// with root in all levels below.
std::vector<Line> lines_of_levels(const Shape& shape, int rank, Collective collective) {
  std::vector<Line> lines;
  const std::vector<Level> levels = levels_of(shape);
  for (const Phase& phase : phases_of(levels, collective)) {
    const Level& level = *phase.level;
    const bool takes_part = std::all_of(levels.data(), &level, [&](const Level& below) {
      return below.of(rank) == below.of(shape.root);
    });
    lines.push_back({algorithm_of(level, collective), level.size, level.size, level.of(shape.root),
                     level.of(rank), level.group(rank), takes_part, &level == &levels.back()});
  }
  return lines;
}

/// Returns the two levels of groups of any sizes. The root, or the first place of another group, is
/// the leader of the group, and the leaders are the outer level.
std::vector<Line> lines_of_groups(const Shape& shape, int rank, Collective collective) {
  const Groups groups(shape);
  const int group = groups.of(rank), root_group = groups.of(shape.root), m = groups.count();
  std::vector<int> leaders;
  for (int i = 0; i < m; ++i) leaders.push_back(i == root_group ? shape.root : groups.first(i));
  const int most = groups.largest(), size = groups.size(group), first = groups.first(group);
  const int leader = leaders[static_cast<std::size_t>(group)];
  std::vector<Line> lines{
      {algorithm_of("", most, collective), most, size, leader - first, rank - first,
       groups.members(group), size > 1, false},
      {algorithm_of("", m, collective), m, m, root_group, group, leaders, rank == leader, true}};
  if (collective == Collective::kBroadcast) std::reverse(lines.begin(), lines.end());
  return lines;
}

} // namespace

Schedule build_hierarchical_rooted(const Shape& shape, int rank, Collective collective) {
  const bool reduces = collective == Collective::kReduce;
  const bool is_root = rank == shape.root;
  const std::vector<Line> lines = shape.groups.empty() ? lines_of_levels(shape, rank, collective)
                                                       : lines_of_groups(shape, rank, collective);
  std::vector<Schedule> parts;
  std::vector<int> pieces; // number of chunks of each level's schedules, alike in all its groups
  int chunks = 1;          // number of chunks of a lane
  for (const Line& line : lines) {
    parts.push_back(
        line.algorithm->build_place({.nranks = line.nranks, .root = line.root}, line.at));
    pieces.push_back(line.algorithm->build_place({.nranks = line.most}, 0).chunks_per_block);
    chunks = std::lcm(chunks, pieces.back());
  }
  Schedule schedule = start_schedule(shape, rank, chunks * shape.channels);
  schedule.input_chunks = reduces || is_root ? schedule.chunks_per_block : std::uint16_t{0};
  schedule.output_chunks = !reduces || is_root ? schedule.chunks_per_block : std::uint16_t{0};

  for (int c = 0; c < shape.channels; ++c) {
    Lane lane{.channel = static_cast<std::uint16_t>(c)};
    const int base = c * chunks;
    std::optional<int> partial; // sum of the levels so far, in scratch
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const Line& line = lines[i];
      const int scale = chunks / pieces[i];
      grow_message(schedule, parts[i].message_chunks * scale);
      if (!line.takes_part) continue;
      const bool collects = line.at == line.root;
      Location input{Buffer::kInput, base, scale}, output{Buffer::kOutput, base, scale};
      if (reduces) {
        if (partial) input = {Buffer::kScratch, *partial, scale};
        if (collects && !line.outermost) {
          if (!partial) {
            partial = static_cast<int>(schedule.scratch.size());
            for (int k = 0; k < chunks; ++k) add_scratch(schedule, 1, base + k);
          }
          output = {Buffer::kScratch, *partial, scale};
        }
      } else if (is_root) {
        if (!line.outermost) output = input; // has been copied
      } else if (collects) {
        input = output;
      }
      embed(parts[i],
            {.ranks = line.ranks,
             .input = input,
             .output = output,
             .scratch = add_scratch_of(schedule, parts[i], base, scale),
             .scale = scale,
             .complete = line.outermost},
            lane);
    }
    schedule.lanes.push_back(std::move(lane));
  }
  return schedule;
}

} // namespace whorl
