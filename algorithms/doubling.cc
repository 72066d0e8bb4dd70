// Recursive doubling. In round k ranks r and r ⊕ 2^k exchange all their data, so the data of each
// doubles: the partial sum of twice as many ranks (allreduce), or twice as many blocks
// (all-gather). Described by R. Thakur, R. Rabenseifner, W. Gropp ("Optimization of Collective
// Communication Operations in MPICH", 2005). With L = ⌊log2 p⌋:
//
//     allreduce    L rounds, L·n bytes sent, L·n reduced; few bytes on many ranks
//     all-gather   L rounds, (p−1)/p·n bytes sent; p a power of two
//
//     round 0   0◀─▶1   2◀─▶3   4◀─▶5   6◀─▶7
//     round 1   0◀─────▶2   1◀─────▶3   4◀─────▶6 …
//     round 2   0◀─────────────▶4   1◀─────────────▶5 …
//
// Where p is not a power of two, allreduce folds: of the first 2(p−2^L) ranks, each even one hands
// its vector to the odd one above it and gets the result at the end: up to two more rounds.
#include "algorithms/doubling.h"

#include <algorithm>
#include <array>

#include "algorithms/common.h"
#include "algorithms/fold.h"

namespace whorl {
namespace {

Schedule build_allreduce(const Shape& shape, int rank) {
  const Fold fold(shape.nranks, rank);
  ScheduleBuilder builder(shape.nranks, rank, shape.channels);
  for (int c = 0; c < shape.channels; ++c) {
    LaneBuilder& lane = builder.lane(c);
    if (fold.extra) {
      lane.peers(fold.partner, fold.partner).send(c).recv_copy(c);
      continue;
    }
    // Partial sums alternate between two scratch chunks. No round writes the chunk that it has
    // sent: both partners would wait until the other has read it.
    const bool folds = fold.partner >= 0;
    const int sums = folds ? floor_log2(fold.core) : std::max(1, floor_log2(fold.core) - 1);
    const std::vector<std::uint16_t> holds(static_cast<std::size_t>(std::min(sums, 2)),
                                           static_cast<std::uint16_t>(c));
    const int scratch = builder.scratch(holds);
    lane.write(Buffer::kScratch);
    int sum = c;
    if (folds) {
      lane.peers(fold.at(1), fold.partner).recv_reduce_copy_send(sum, scratch);
      sum = scratch;
      lane.read(Buffer::kScratch);
    } else {
      lane.peers(fold.at(1), fold.at(1)).send(sum);
    }
    int target = folds ? 1 : 0;
    for (int bit = 1; 2 * bit < fold.core; bit *= 2, target ^= 1) {
      lane.peers(fold.at(2 * bit), fold.at(bit)).recv_reduce_copy_send(sum, scratch + target);
      sum = scratch + target;
      lane.read(Buffer::kScratch);
    }
    const int last = fold.at(fold.core / 2);
    if (folds) {
      lane.write(Buffer::kOutput).peers(fold.partner, last).recv_reduce_copy_send(sum, c).final();
    } else if (fold.core == 2) { // the last round is the first, which has sent the input
      lane.peers(last, last).recv_reduce_copy(sum, scratch).final();
      lane.read(Buffer::kScratch).write(Buffer::kOutput).copy(scratch, c);
    } else {
      lane.write(Buffer::kOutput).peers(last, last).recv_reduce_copy(sum, c).final();
    }
  }
  return std::move(builder).build();
}

/// Returns the parts of the rounds within the groups of each level: the first ones, if all ranks
/// and the groups are powers of two.
std::array<LevelPart, kMaxLevels - 1> inner_parts(const Shape& shape) {
  std::array<LevelPart, kMaxLevels - 1> parts{};
  if (!shape.groups.empty() || !is_power_of_two(shape.nranks)) return parts;
  int below = 0; // rounds within smaller groups
  const auto levels = divisions(shape);
  for (std::size_t level = 0; level < levels.size(); ++level) {
    const int group = levels[level][1];
    if (!is_power_of_two(group)) break;
    const double rounds = floor_log2(group) - below;
    parts.at(level) = {.rounds = rounds, .volume = rounds, .messages = rounds * shape.channels};
    below = floor_log2(group);
  }
  return parts;
}

Cost allreduce_cost(const Shape& shape) {
  const double rounds = floor_log2(shape.nranks);
  const double folds = is_power_of_two(shape.nranks) ? 0 : 1;
  // A chain through all rounds ends at the opposite virtual rank. If both ends are folded, which
  // happens if more than half of the core is, the chain has a message before and one after.
  const int core = 1 << floor_log2(shape.nranks);
  const bool both_ends = 2 * (shape.nranks - core) > core;
  const double n = shape.nranks;
  const double mean = (core * rounds + 2 * (n - core)) / n;
  return {.rounds = rounds + folds + (both_ends ? 1 : 0),
          .volume = rounds + folds,
          .sent = rounds + folds,
          .received = rounds + folds,
          .mean = mean,
          .fifos = rounds,
          .reduced = rounds + folds,
          .copied = shape.nranks == 2 ? 1.0 : 0.0,
          .messages = (rounds + folds) * shape.channels,
          .window = static_cast<double>(shape.channels),
          .inner = inner_parts(shape)};
}

// Builds a barrier: the allreduce of nothing, for which one lane is enough.
Schedule build_barrier(const Shape& shape, int rank) {
  return build_allreduce({.nranks = shape.nranks}, rank);
}
Cost barrier_cost(const Shape& shape) {
  return allreduce_cost({.nranks = shape.nranks, .dims = shape.dims});
}

Schedule build_all_gather(const Shape& shape, int rank) {
  const int n = shape.nranks;
  ScheduleBuilder builder(n, rank, 1);
  builder.blocks(1, n).message_chunks(n / 2);
  LaneBuilder& lane = builder.lane(0);
  lane.peers(rank ^ 1, rank ^ 1).send(0).copy(0, rank).recv_copy(rank ^ 1);
  lane.read(Buffer::kOutput);
  for (int bit = 2; bit < n; bit *= 2) {
    const int mine = rank & ~(bit - 1); // first of the `bit` blocks that this rank has
    lane.peers(rank ^ bit, rank ^ bit).send(mine).count(bit).recv_copy(mine ^ bit).count(bit);
  }
  return std::move(builder).build();
}

bool all_gather_supports(const Shape& shape) {
  return is_power_of_two(shape.nranks) && shape.nranks <= kMaxChunks;
}

Cost all_gather_cost(const Shape& shape) {
  const double n = shape.nranks;
  const double rounds = floor_log2(shape.nranks);
  const double volume = (n - 1) / n;
  return {.rounds = rounds,
          .volume = volume,
          .sent = volume,
          .received = volume,
          .mean = volume,
          .fifos = rounds,
          .copied = sorted_blocks(shape),
          .messages = rounds,
          .window = 2};
}

bool always(const Shape& shape) { return shape.channels <= kMaxChunks; }

constexpr std::array kAlgorithms{
    Algorithm{"doubling", Collective::kAllReduce, always, build_allreduce, allreduce_cost},
    Algorithm{"doubling", Collective::kBarrier, always, build_barrier, barrier_cost},
    Algorithm{"doubling", Collective::kAllGather, all_gather_supports, build_all_gather,
              all_gather_cost},
};

} // namespace

std::span<const Algorithm> doubling_algorithms() { return kAlgorithms; }

} // namespace whorl
