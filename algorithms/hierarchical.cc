// Hierarchical: one algorithm for each level of a hierarchy of groups (cores, sockets, hosts,
// racks, or the axes of a torus). Data that is first reduced within a group crosses to other groups
// only once; with g ranks in a group, each sends n/g instead of n bytes out of it. Any registered
// algorithm can be a level; its schedule is embedded with partners and chunks renamed. (Multi-lane
// decomposition: J. L. Träff, S. Hunold, "Decomposing MPI Collectives for Exploiting Multi-lane
// Communication", 2020.) With levels of s0, s1, … ranks, innermost first:
//
//     allreduce        reduce-scatter in level 0, 1, …; allreduce in the last one, of n/(s0·s1·…)
//                      bytes; all-gather in …, 1, 0
//     reduce-scatter   reduce-scatter in level 0, 1, …
//     all-gather       all-gather in …, 1, 0
//     broadcast        broadcast in …, 1, 0, each by the ranks that have the vector
//     reduce           reduce in 0, 1, …, to the ranks in line with root
//
//     4x2, allreduce:   ranks 0–3, 4–7: quarter i of the vector is reduced by ranks i and 4+i
//                       ranks i, 4+i:   allreduce of that quarter
//                       ranks 0–3, 4–7: quarters are gathered
//
// Blocks of a reduce-scatter are in order of rank, so those of one inner partner, all ranks with
// the same i0, lie s0 apart. Therefore level 0 runs its algorithm once for each group of s0
// contiguous blocks, whose owners are one other group, and keeps one partial block of each for
// level 1. So no byte is copied to be sorted, and there are more, smaller messages. The all-gather
// mirrors the reduce-scatter.
//
// Groups of unequal sizes (Shape::groups) are two levels. See uneven.cc for the collectives in
// which all ranks have data; in the others one leader of each group takes part in the outer level.
#include "algorithms/hierarchical.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "algorithms/common.h"
#include "algorithms/embed.h"
#include "algorithms/groups.h"
#include "algorithms/uneven.h"

namespace whorl {
namespace {

/// Level with more than one rank.
struct Level {
  const Dimension* dimension;
  int size;
  int distance; ///< distance between neighbours in this level
  int of(int rank) const { return rank / distance % size; }
  /// Returns the ranks that differ from `rank` in this level only.
  std::vector<int> group(int rank) const {
    std::vector<int> ranks;
    const int first = rank - of(rank) * distance;
    for (int i = 0; i < size; ++i) ranks.push_back(first + i * distance);
    return ranks;
  }
  Shape shape(int root) const { return {.nranks = size, .root = of(root)}; }
};

std::vector<Level> levels_of(const Shape& shape) {
  std::vector<Level> levels;
  int distance = 1;
  for (const Dimension& dimension : shape.dims) {
    if (dimension.size > 1) levels.push_back({&dimension, dimension.size, distance});
    distance *= dimension.size;
  }
  return levels;
}

/// Returns the algorithm of a level of `size` ranks. Names that a collective lacks stand for a half
/// of the algorithm: two-shot is a direct reduce-scatter and a direct all-gather.
const Algorithm* algorithm_of(std::string_view name, int size, Collective collective) {
  const bool all_reduce = collective == Collective::kAllReduce;
  if (name.empty()) {
    constexpr int kDirectRanks = 16; // beyond that a direct exchange has too many messages
    name = size <= kDirectRanks ? "direct" : "circulant";
    if (size > kDirectRanks && has_root(collective)) name = "tree";
  }
  if (name == "hierarchical") return nullptr;
  if (const Algorithm* algorithm = find_algorithm(collective, name)) return algorithm;
  if (name == "direct" && all_reduce) return find_algorithm(collective, "twoshot");
  if (name == "twoshot" || name == "oneshot") return find_algorithm(collective, "direct");
  if (name == "halving_doubling") return find_algorithm(collective, "doubling");
  if (name == "doubling") return find_algorithm(collective, "halving_doubling");
  return nullptr;
}
const Algorithm* algorithm_of(const Level& level, Collective collective) {
  return algorithm_of(level.dimension->algorithm, level.size, collective);
}

/// Collective of one level. The phases of an allreduce are in the order reduce-scatters, allreduce,
/// all-gathers.
struct Phase {
  const Level* level;
  Collective collective;
};

std::vector<Phase> phases_of(const std::vector<Level>& levels, Collective collective) {
  std::vector<Phase> phases;
  if (collective == Collective::kAllReduce) {
    for (const Level& level : levels) phases.push_back({&level, Collective::kReduceScatter});
    phases.back().collective = Collective::kAllReduce;
    for (auto level = levels.rbegin() + 1; level != levels.rend(); ++level) {
      phases.push_back({&*level, Collective::kAllGather});
    }
    return phases;
  }
  for (const Level& level : levels) phases.push_back({&level, collective});
  if (collective == Collective::kAllGather || collective == Collective::kBroadcast) {
    std::reverse(phases.begin(), phases.end());
  }
  return phases;
}

Schedule part_of(const Phase& phase, int rank) {
  return algorithm_of(*phase.level, phase.collective)
      ->build_place(phase.level->shape(0), phase.level->of(rank));
}

Schedule start(const Shape& shape, int rank, int chunks_per_block) {
  Schedule schedule;
  schedule.rank = rank;
  schedule.nranks = shape.nranks;
  schedule.chunks_per_block = static_cast<std::uint16_t>(chunks_per_block);
  return schedule;
}

void grow_message(Schedule& schedule, int chunks) {
  schedule.message_chunks =
      static_cast<std::uint16_t>(std::max<int>(schedule.message_chunks, chunks));
}

/// Adds `count` scratch chunks of index `holds` and returns the first one.
int add_scratch(Schedule& schedule, int count, int holds) {
  const auto first = schedule.scratch.size();
  schedule.scratch.resize(first + static_cast<std::size_t>(count),
                          static_cast<std::uint16_t>(holds));
  return static_cast<int>(first);
}

/// Adds the scratch of a part to a schedule whose only block has the part's vector from chunk
/// `base` on.
Location add_scratch_of(Schedule& schedule, const Schedule& part, int base, int scale) {
  const Location place{Buffer::kScratch, static_cast<int>(schedule.scratch.size()), scale};
  for (const int label : scratch_labels(part)) {
    for (int i = 0; i < scale; ++i) add_scratch(schedule, 1, base + label * scale + i);
  }
  return place;
}

Schedule build_allreduce(const Shape& shape, int rank) {
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
  Schedule schedule = start(shape, rank, sizes[0] * shape.channels);
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

/// Returns the number of lanes of a reduce-scatter or all-gather. The chunks of one lane are one
/// block apart, so there is just one lane if a level sends several blocks as one message.
int block_lanes(const Shape& shape, const std::vector<Schedule>& parts) {
  return std::any_of(parts.begin(), parts.end(), has_long_messages) ? 1 : shape.channels;
}

/// Builds a reduce-scatter or all-gather: `many` chunks are in the buffer with a block for each
/// rank.
Schedule build_blocks(const Shape& shape, int rank, Collective collective) {
  if (!shape.groups.empty()) return build_uneven(shape, rank, collective);
  const bool scatters = collective == Collective::kReduceScatter;
  const std::vector<Level> levels = levels_of(shape);
  const std::vector<Phase> phases = phases_of(levels, collective);
  std::vector<Schedule> parts;
  for (const Phase& phase : phases) parts.push_back(part_of(phase, rank));
  const int lanes = block_lanes(shape, parts);

  Schedule schedule = start(shape, rank, lanes);
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
Schedule build_reduce_scatter(const Shape& shape, int rank) {
  return build_blocks(shape, rank, Collective::kReduceScatter);
}
Schedule build_all_gather(const Shape& shape, int rank) {
  return build_blocks(shape, rank, Collective::kAllGather);
}

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

/// Builds a broadcast or reduce.
Schedule build_rooted(const Shape& shape, int rank, Collective collective) {
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
  Schedule schedule = start(shape, rank, chunks * shape.channels);
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
Schedule build_broadcast(const Shape& shape, int rank) {
  return build_rooted(shape, rank, Collective::kBroadcast);
}
Schedule build_reduce(const Shape& shape, int rank) {
  return build_rooted(shape, rank, Collective::kReduce);
}

/// Returns a shape of equal groups whose levels are as large as those of `shape` at most.
Shape with_equal_groups(const Shape& shape) {
  const Groups groups(shape);
  const int most = groups.largest(), m = groups.count();
  return {.nranks = m * most, .channels = shape.channels, .dims = {{most, {}}, {m, {}}}};
}

template <Collective kCollective>
bool supports(const Shape& shape) {
  if (!shape.groups.empty()) {
    if (!has_root(kCollective)) return uneven_supports(shape);
    if (!Groups::exist(shape)) return false;
    const Groups groups(shape);
    return groups.largest() - 1 + groups.count() - 1 <= kMaxPeers &&
           supports<kCollective>(with_equal_groups(shape));
  }
  long ranks = 1;
  for (const Dimension& dimension : shape.dims) {
    if (dimension.size < 1) return false;
    ranks *= dimension.size;
    if (ranks > shape.nranks) return false;
  }
  const std::vector<Level> levels = levels_of(shape);
  if (ranks != shape.nranks || levels.size() < 2) return false;
  int peers = 0;
  for (const Level& level : levels) peers += level.size - 1;
  if (peers > kMaxPeers || !chunks_fit(shape, kPipelineChunks)) return false;
  const std::vector<Phase> phases = phases_of(levels, kCollective);
  return std::all_of(phases.begin(), phases.end(), [&](const Phase& phase) {
    const Algorithm* algorithm = algorithm_of(*phase.level, phase.collective);
    return algorithm != nullptr && algorithm->supports(phase.level->shape(shape.root));
  });
}

/// Sums up the costs of the levels. `share` is the part of the vector that a level handles.
template <Collective kCollective>
Cost cost(const Shape& shape) {
  constexpr bool kBlocks =
      kCollective == Collective::kReduceScatter || kCollective == Collective::kAllGather;
  if (!shape.groups.empty()) {
    if (!has_root(kCollective)) return uneven_cost(shape, kCollective);
    Cost cost_of_equal = cost<kCollective>(with_equal_groups(shape));
    // All ranks but one send the vector, or receive it, once.
    cost_of_equal.mean = cost_of_equal.fifos = (shape.nranks - 1.0) / shape.nranks;
    return cost_of_equal;
  }
  const std::vector<Level> levels = levels_of(shape);
  Cost sum;
  sum.streams = has_root(kCollective);
  double message = 0; // size of the largest one, as part of a lane's data in a window
  double lanes = shape.channels;
  for (const Phase& phase : phases_of(levels, kCollective)) {
    const Level& level = *phase.level;
    const Cost part = algorithm_of(level, phase.collective)->cost(level.shape(shape.root));
    const double share = has_root(kCollective) ? 1.0 : 1.0 / level.distance;
    const double times = kBlocks ? shape.nranks / (level.distance * level.size) : 1.0;
    sum.rounds += times * part.rounds;
    sum.volume += share * part.volume;
    sum.sent += share * part.sent;
    sum.received += share * part.received;
    sum.mean += part.mean / level.distance; // also the ranks of a rooted level are as many fewer
    sum.fifos += has_root(kCollective) ? part.fifos / level.distance : part.fifos;
    sum.reduced += share * part.reduced;
    sum.merged += share * part.merged;
    sum.copied += share * part.copied;
    sum.messages += times * part.messages;
    const auto number = static_cast<std::size_t>(&level - levels.data());
    if (number < sum.inner.size() && number + 1 < levels.size()) {
      LevelPart& inner = sum.inner.at(number);
      inner.rounds += times * part.rounds;
      inner.volume += share * part.volume;
      inner.messages += times * part.messages;
    }
    sum.fill += share * part.fill;
    message = std::max(message, share / times / part.window);
    if (kBlocks && has_long_messages(part_of(phase, 0))) {
      lanes = 1;
      if (level.distance == 1) sum.copied += sorted_blocks(shape);
    }
  }
  sum.messages *= lanes;
  for (LevelPart& inner : sum.inner) inner.messages *= lanes;
  sum.window = lanes / message;
  return sum;
}

template <Collective kCollective>
constexpr Algorithm hierarchical(Schedule (*build)(const Shape&, int)) {
  return {"hierarchical", kCollective, supports<kCollective>, build, cost<kCollective>};
}

constexpr std::array kAlgorithms{
    hierarchical<Collective::kAllReduce>(build_allreduce),
    hierarchical<Collective::kReduceScatter>(build_reduce_scatter),
    hierarchical<Collective::kAllGather>(build_all_gather),
    hierarchical<Collective::kBroadcast>(build_broadcast),
    hierarchical<Collective::kReduce>(build_reduce),
};

} // namespace

std::span<const Algorithm> hierarchical_algorithms() { return kAlgorithms; }

} // namespace whorl
