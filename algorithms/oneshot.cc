// One-shot allreduce: every rank sends its whole vector to every other and reduces all of them
// itself, in one pass. One round, (p−1)·n bytes sent by each rank, (p−1)·n reduced: the fastest way
// for a few bytes, where only the number of rounds counts. Folklore; the name comes from the
// allreduce kernels of GPU inference libraries.
//
//     rank 0: x0 ──┬──▶ rank 1        every rank, in ascending order of rank:
//                  ├──▶ rank 2        result = x0 ⊕ x1 ⊕ x2 ⊕ …
//                  └──▶ …             in one step with a fan of p−1
//
// All ranks combine the same operands in the same order, so all get the same bits.
#include "algorithms/oneshot.h"

#include <array>

#include "algorithms/common.h"

namespace whorl {
namespace {

Schedule build(const Shape& shape, int rank) {
  const std::vector<int> others = other_ranks(shape.nranks, rank);
  ScheduleBuilder builder(shape.nranks, rank, shape.channels);
  for (int c = 0; c < shape.channels; ++c) {
    // In place the result must not overwrite the input while peers still read it, which they do
    // until they have all vectors. So the result waits in scratch.
    const int result = builder.scratch({static_cast<std::uint16_t>(c)});
    builder.lane(c)
        .peers(others, others)
        .write(Buffer::kScratch)
        .send(c)
        .recv_reduce_copy(c, result)
        .final()
        .read(Buffer::kScratch)
        .write(Buffer::kOutput)
        .copy(result, c);
  }
  return std::move(builder).build();
}

Cost cost(const Shape& shape) {
  const double others = shape.nranks - 1;
  return {.rounds = 1,
          .volume = others,
          .sent = others,
          .received = others,
          .mean = others,
          .fifos = others,
          .reduced = others,
          .merged = others - 1,
          .copied = 1,
          .messages = others * shape.channels,
          .window = static_cast<double>(shape.channels)};
}

// Builds a barrier: the allreduce of nothing, for which one lane is enough.
Schedule build_barrier(const Shape& shape, int rank) {
  return build({.nranks = shape.nranks}, rank);
}
Cost barrier_cost(const Shape& shape) { return cost({.nranks = shape.nranks}); }

constexpr std::array kAlgorithms{
    Algorithm{"oneshot", Collective::kAllReduce, peers_fit, build, cost, true},
    Algorithm{"oneshot", Collective::kBarrier, peers_fit, build_barrier, barrier_cost},
};

} // namespace

std::span<const Algorithm> oneshot_algorithms() { return kAlgorithms; }

} // namespace whorl
