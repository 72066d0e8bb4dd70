// Pairwise all-to-all, in rounds: in round k rank r sends its block for rank r+k, then receives the
// block from rank r−k. Least volume, as the direct form, for any number of ranks; a rank has one
// message under way in each direction instead of p−1. The "pairwise exchange" of R. Thakur,
// R. Rabenseifner, W. Gropp ("Optimization of Collective Communication Operations in MPICH", 2005).
//
//     alltoall   p−1 rounds, or 2⌈(p−1)/2w⌉ in w lanes of a channel; (p−1)/p·n bytes sent
//
//     rank 1 of 4:   ▶2 ◀0   ▶3 ◀3   ▶0 ◀2
//     rank 2 of 4:   ▶3 ◀1   ▶0 ◀0   ▶1 ◀3
//
// A lane can name 255 partners, so that more ranks need w = ⌈⌊p/2⌋/127⌉ lanes for each channel,
// which are so many exchanges at the same time. The distances k and p−k belong to one lane, in
// which a rank both sends to and receives from the same peers.
#include "algorithms/pairwise.h"

#include <algorithm>
#include <array>

#include "algorithms/common.h"

namespace whorl {
namespace {

/// Returns the number of lanes of each channel. A lane has two partners for each pair of distances.
int lanes_of_channel(int nranks) {
  constexpr int kPairs = kMaxPeers / 2;
  return (nranks / 2 + kPairs - 1) / kPairs;
}
/// Returns the lane, among those of its channel, of the rounds of distance `k`.
int lane_of(int nranks, int k) { return (std::min(k, nranks - k) - 1) % lanes_of_channel(nranks); }

Schedule build(const Shape& shape, int rank) {
  const int n = shape.nranks;
  ScheduleBuilder builder(n, rank, shape.channels);
  builder.blocks(n, n);
  const int width = lanes_of_channel(n);
  for (int c = 0; c < shape.channels; ++c) {
    const auto chunk = [&](int block) { return block * shape.channels + c; };
    for (int l = 0; l < width; ++l) {
      LaneBuilder& lane = builder.lane(c);
      for (int k = 1; k < n; ++k) {
        if (lane_of(n, k) != l) continue;
        const int to = wrap(rank + k, n), from = wrap(rank - k, n);
        lane.peers(to, from).send(chunk(to));
        if (k == 1) lane.copy(chunk(rank), chunk(rank));
        lane.recv_copy(chunk(from));
      }
    }
  }
  return std::move(builder).build();
}

bool supports(const Shape& shape) { return chunks_fit(shape); }

Cost cost(const Shape& shape) {
  const double n = shape.nranks;
  int rounds = 0; // the first lane has most
  for (int k = 1; k < shape.nranks; ++k) rounds += lane_of(shape.nranks, k) == 0 ? 1 : 0;
  const double volume = (n - 1) / n;
  return {.rounds = static_cast<double>(rounds),
          .volume = volume,
          .sent = volume,
          .received = volume,
          .mean = volume,
          .fifos = n - 1,
          .messages = (n - 1) * shape.channels,
          .window = n * shape.channels};
}

constexpr std::array kAlgorithms{
    Algorithm{"pairwise", Collective::kAllToAll, supports, build, cost},
};

} // namespace

std::span<const Algorithm> pairwise_algorithms() { return kAlgorithms; }

} // namespace whorl
