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

#include "algorithms/common.h"
#include "algorithms/groups.h"
#include "algorithms/hierarchical_build.h"
#include "algorithms/levels.h"
#include "algorithms/uneven.h"

namespace whorl {
namespace {

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
Schedule build(const Shape& shape, int rank) {
  if constexpr (kCollective == Collective::kAllReduce)
    return build_hierarchical_allreduce(shape, rank);
  if constexpr (has_root(kCollective)) return build_hierarchical_rooted(shape, rank, kCollective);
  return build_hierarchical_blocks(shape, rank, kCollective);
}

template <Collective kCollective>
constexpr Algorithm hierarchical() {
  return {"hierarchical", kCollective, supports<kCollective>, build<kCollective>,
          cost<kCollective>};
}

constexpr std::array kAlgorithms{
    hierarchical<Collective::kAllReduce>(), hierarchical<Collective::kReduceScatter>(),
    hierarchical<Collective::kAllGather>(), hierarchical<Collective::kBroadcast>(),
    hierarchical<Collective::kReduce>(),
};

} // namespace

std::span<const Algorithm> hierarchical_algorithms() { return kAlgorithms; }

} // namespace whorl
