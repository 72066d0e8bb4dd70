// Two-shot allreduce: rank r reduces slice r, straight from every peer, and hands the result to
// every peer. Two rounds, 2(p−1)/p·n bytes sent by each rank, (p−1)/p·n reduced: optimal volume in
// the fewest rounds, for ranks that are all equally near (shared memory, a switch). This algorithm
// is the reduce-scatter plus all-gather of R. Rabenseifner ("Optimization of Collective Reduction
// Operations", 2004) with both halves done directly.
//
//            slice 0  slice 1  slice 2          slice 0  slice 1  slice 2
//     rank 0   ■ ◀──┐   a0       a0               S0 ───▶  S1       S2
//     rank 1   a1 ──┤   ■                   then  S0 ◀──   S1       S2     S = a0 ⊕ a1 ⊕ a2
//     rank 2   a2 ──┘            ■                S0 ◀──   S1       S2
//
// Each slice is combined once, in ascending order of rank, by one rank: all ranks get the same
// bits.
#include "algorithms/twoshot.h"

#include <array>

#include "algorithms/common.h"

namespace whorl {
namespace {

Schedule build(const Shape& shape, int rank) {
  const int n = shape.nranks;
  const std::vector<int> others = other_ranks(n, rank);
  ScheduleBuilder builder(n, rank, n * shape.channels);
  for (int c = 0; c < shape.channels; ++c) {
    LaneBuilder& lane = builder.lane(c);
    const auto chunk = [&](int slice) { return slice * shape.channels + c; };
    // Partners are staggered, so that not all ranks start with rank 0.
    for (int k = 1; k < n; ++k) {
      const int peer = wrap(rank + k, n);
      lane.peers(peer, peer).send(chunk(peer));
    }
    lane.peers(others, others).recv_reduce_copy_send(chunk(rank), chunk(rank)).final();
    for (int k = 1; k < n; ++k) {
      const int peer = wrap(rank - k, n);
      lane.peers(peer, peer).recv_copy(chunk(peer));
    }
  }
  return std::move(builder).build();
}

bool supports(const Shape& shape) { return peers_fit(shape) && chunks_fit(shape); }

Cost cost(const Shape& shape) {
  const double n = shape.nranks;
  const double volume = 2 * (n - 1) / n;
  return {.rounds = 2,
          .volume = volume,
          .sent = volume,
          .received = volume,
          .mean = volume,
          .fifos = n - 1,
          .reduced = (n - 1) / n,
          .merged = (n - 2) / n,
          .messages = 2 * (n - 1) * shape.channels,
          .window = n * shape.channels};
}

constexpr std::array kAlgorithms{
    Algorithm{"twoshot", Collective::kAllReduce, supports, build, cost, true},
};

} // namespace

std::span<const Algorithm> twoshot_algorithms() { return kAlgorithms; }

} // namespace whorl
