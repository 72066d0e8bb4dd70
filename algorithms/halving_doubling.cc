// Recursive halving and doubling (R. Rabenseifner, "Optimization of Collective Reduction
// Operations", 2004). Halving is a reduce-scatter: in each round two partners split the range of
// their partial sums, and each sends the half that the other keeps. Doubling, the all-gather, goes
// the same way back. Optimal volume in few rounds, for powers of two. With L = ⌊log2 p⌋:
//
//     allreduce       2L rounds, 2(p−1)/p·n bytes sent, (p−1)/p·n reduced
//     reduce-scatter   L rounds,  (p−1)/p·n bytes sent, (p−1)/p·n reduced; p a power of two
//
//     vector of rank 0 of 8    ████████        kept after
//     round 0, with rank 1     ████░░░░  0…3   half of the bytes go to the nearest rank,
//     round 1, with rank 2     ██░░      0…1   a quarter two ranks away,
//     round 2, with rank 4     █░        0     an eighth four ranks away
//
// Allreduce may cut the vector anywhere, so near partners exchange the large halves. The blocks
// of a reduce-scatter are ordered by rank: there contiguous halves mean that the farthest partner
// comes first. (The circulant algorithm has near partners first there too.)
//
// Where p is not a power of two, allreduce folds: of the first 2(p−2^L) ranks, each even one hands
// its vector to the odd one above it and gets the result in the end: two rounds and, for those
// ranks, n bytes more.
#include "algorithms/halving_doubling.h"

#include <array>

#include "algorithms/common.h"
#include "algorithms/fold.h"

namespace whorl {
namespace {

Schedule build_allreduce(const Shape& shape, int rank) {
  const Fold fold(shape.nranks, rank);
  const int half = fold.core / 2;
  ScheduleBuilder builder(shape.nranks, rank, fold.core * shape.channels);
  builder.message_chunks(half);
  for (int c = 0; c < shape.channels; ++c) {
    LaneBuilder& lane = builder.lane(c);
    const int begin = c * fold.core;
    lane.peers(fold.partner, fold.partner);
    if (fold.extra) {
      lane.send(begin).count(half).repeat(2, half);
      lane.recv_copy(begin).count(half).repeat(2, half);
      continue;
    }
    if (fold.partner >= 0) {
      lane.recv_reduce_copy(begin, begin).count(half).repeat(2, half);
      lane.read(Buffer::kOutput);
    }
    int first = begin, size = half;
    for (int bit = 1; bit < fold.core; bit *= 2, size /= 2) {
      const bool upper = (fold.virtual_rank & bit) != 0;
      const int theirs = first + (upper ? 0 : size);
      first += upper ? size : 0;
      lane.peers(fold.at(bit), fold.at(bit)).send(theirs).count(size);
      if (bit < half) {
        lane.recv_reduce_copy(first, first).count(size).read(Buffer::kOutput);
      } else { // the sum is complete; doubling begins with the same partner
        lane.recv_reduce_copy_send(first, first).final();
      }
    }
    lane.read(Buffer::kOutput);
    size = 1;
    for (int bit = half; bit > 0; bit /= 2, size *= 2) {
      const bool upper = (fold.virtual_rank & bit) != 0;
      lane.peers(fold.at(bit), fold.at(bit));
      if (bit < half) lane.send(first).count(size);
      lane.recv_copy(upper ? first - size : first + size).count(size);
      first -= upper ? size : 0;
    }
    if (fold.partner >= 0) {
      lane.peers(fold.partner, fold.partner).send(begin).count(half).repeat(2, half);
    }
  }
  return std::move(builder).build();
}

bool allreduce_supports(const Shape& shape) { return chunks_fit(shape); }

Cost allreduce_cost(const Shape& shape) {
  const int rounds = floor_log2(shape.nranks);
  const double core = 1 << rounds;
  const bool folds = !is_power_of_two(shape.nranks);
  const double n = shape.nranks;
  const double volume = 2 * (core - 1) / core + (folds ? 1 : 0);
  return {.rounds = 2.0 * rounds + (folds ? 2 : 0),
          .volume = volume,
          .sent = volume,
          .received = volume,
          .mean = (2 * (core - 1) + 2 * (n - core)) / n,
          .fifos = static_cast<double>(rounds),
          .reduced = (core - 1) / core + (folds ? 1 : 0),
          .messages = (2.0 * rounds + (folds ? 2 : 0)) * shape.channels,
          .window = 2.0 * shape.channels};
}

Schedule build_reduce_scatter(const Shape& shape, int rank) {
  const int n = shape.nranks;
  ScheduleBuilder builder(n, rank, 1);
  builder.blocks(n, 1).message_chunks(n / 2);
  // First block of the half that this rank keeps in the first round. Later halves lie within it.
  const int kept = rank & (n / 2);
  if (n > 2) builder.scratch(std::vector<std::uint16_t>(static_cast<std::size_t>(n / 2), 0));
  LaneBuilder& lane = builder.lane(0);
  for (int bit = n / 2; bit > 0; bit /= 2) {
    const int mine = rank & ~(bit - 1);
    const int origin = bit == n / 2 ? 0 : kept; // first block in the buffer that is read
    lane.peers(rank ^ bit, rank ^ bit).send((mine ^ bit) - origin).count(bit);
    if (bit == 1) {
      lane.recv_reduce_copy(mine - origin, 0).final();
    } else {
      lane.write(Buffer::kScratch).recv_reduce_copy(mine - origin, mine - kept).count(bit);
      lane.read(Buffer::kScratch).write(Buffer::kOutput);
    }
  }
  return std::move(builder).build();
}

bool reduce_scatter_supports(const Shape& shape) {
  return is_power_of_two(shape.nranks) && shape.nranks <= kMaxChunks;
}

Cost reduce_scatter_cost(const Shape& shape) {
  const double n = shape.nranks;
  const double rounds = floor_log2(shape.nranks);
  return {.rounds = rounds,
          .volume = (n - 1) / n,
          .sent = (n - 1) / n,
          .received = (n - 1) / n,
          .mean = (n - 1) / n,
          .fifos = rounds,
          .reduced = (n - 1) / n,
          .copied = sorted_blocks(shape),
          .messages = rounds,
          .window = 2};
}

constexpr std::array kAlgorithms{
    Algorithm{"halving_doubling", Collective::kAllReduce, allreduce_supports, build_allreduce,
              allreduce_cost},
    Algorithm{"halving_doubling", Collective::kReduceScatter, reduce_scatter_supports,
              build_reduce_scatter, reduce_scatter_cost},
};

} // namespace

std::span<const Algorithm> halving_doubling_algorithms() { return kAlgorithms; }

} // namespace whorl
