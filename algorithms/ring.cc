// Ring. Each rank receives from the one before it and sends to the one behind it, so that only
// neighbours exchange messages. Reduce-scatter and all-gather send a block one place on in each of
// p−1 rounds; allreduce is the first and then the second (P. Patarasu, X. Yuan, "Bandwidth optimal
// all-reduce algorithms for clusters of workstations", 2009). Volume is optimal, the number of
// rounds is not: for few ranks, much data, or links that get scarcer with distance.
//
//     allreduce        2(p−1) rounds, 2(p−1)/p·n bytes sent, (p−1)/p·n reduced
//     reduce-scatter    (p−1) rounds,  (p−1)/p·n bytes sent, (p−1)/p·n reduced
//     all-gather        (p−1) rounds,  (p−1)/p·n bytes sent
//     broadcast, reduce (p−1) rounds of a chunk (a chain, pipelined), n bytes sent
//
//     reduce-scatter of block b:   b+1 ──▶ b+2 ──▶ … ──▶ b−1 ──▶ b     each adds its own part
//     all-gather of block b:       b ──▶ b+1 ──▶ … ──▶ b−2 ──▶ b−1
//
// Each channel is a separate ring over every channels-th chunk: chunk (i, c) has index
// i·channels + c, so that a stride of −channels goes round the whole buffer.
#include "algorithms/ring.h"

#include <array>
#include <utility>

#include "algorithms/common.h"

namespace whorl {
namespace {

Schedule build_allreduce(const Shape& shape, int rank) {
  const int n = shape.nranks;
  const int channels = shape.channels;
  ScheduleBuilder builder(n, rank, n * channels);
  for (int c = 0; c < channels; ++c) {
    const auto chunk = [&](int block) { return block * channels + c; };
    builder.lane(c)
        .peers(wrap(rank + 1, n), wrap(rank - 1, n))
        .send(chunk(rank - 1))
        .recv_reduce_send(chunk(rank - 2))
        .repeat(n - 2, -channels) // partial sums travel once round
        .recv_reduce_copy_send(chunk(rank), chunk(rank))
        .final() // this rank completes its own chunk
        .recv_copy_send(chunk(rank - 1))
        .repeat(n - 2, -channels) // finished chunks travel once round
        .recv_copy(chunk(rank + 1));
  }
  return std::move(builder).build();
}

Schedule build_reduce_scatter(const Shape& shape, int rank) {
  const int n = shape.nranks;
  const int channels = shape.channels;
  ScheduleBuilder builder(n, rank, channels);
  builder.blocks(n, 1);
  for (int c = 0; c < channels; ++c) {
    const auto chunk = [&](int block) { return block * channels + c; };
    builder.lane(c)
        .peers(wrap(rank + 1, n), wrap(rank - 1, n))
        .send(chunk(rank - 1))
        .recv_reduce_send(chunk(rank - 2))
        .repeat(n - 2, -channels)
        .recv_reduce_copy(chunk(rank), c)
        .final();
  }
  return std::move(builder).build();
}

Schedule build_all_gather(const Shape& shape, int rank) {
  const int n = shape.nranks;
  const int channels = shape.channels;
  ScheduleBuilder builder(n, rank, channels);
  builder.blocks(1, n);
  for (int c = 0; c < channels; ++c) {
    const auto chunk = [&](int block) { return block * channels + c; };
    builder.lane(c)
        .peers(wrap(rank + 1, n), wrap(rank - 1, n))
        .send(c)
        .copy(c, chunk(rank))
        .recv_copy_send(chunk(rank - 1))
        .repeat(n - 2, -channels)
        .recv_copy(chunk(rank + 1));
  }
  return std::move(builder).build();
}

/// Chain of a broadcast: the ring cut open in front of the root. A reduction runs up the chain.
struct Chain {
  Chain(const Shape& shape, int rank)
      : next(wrap(rank + 1, shape.nranks)),
        prev(wrap(rank - 1, shape.nranks)),
        first(rank == shape.root),
        last(next == shape.root) {}
  int next, prev;
  bool first, last;
};

Schedule build_broadcast(const Shape& shape, int rank) {
  constexpr int kChunks = kPipelineChunks;
  const Chain chain(shape, rank);
  ScheduleBuilder builder(shape.nranks, rank, kChunks * shape.channels);
  if (!chain.first) builder.blocks(0, 1);
  for (int c = 0; c < shape.channels; ++c) {
    LaneBuilder& lane = builder.lane(c);
    const int begin = c * kChunks;
    lane.peers(chain.next, chain.prev);
    if (chain.first) {
      lane.send(begin).repeat(kChunks, 1).copy(begin, begin).repeat(kChunks, 1);
    } else if (chain.last) {
      lane.recv_copy(begin).repeat(kChunks, 1);
    } else {
      lane.recv_copy_send(begin).repeat(kChunks, 1);
    }
  }
  return std::move(builder).build();
}

Schedule build_reduce(const Shape& shape, int rank) {
  constexpr int kChunks = kPipelineChunks;
  const Chain chain(shape, rank);
  ScheduleBuilder builder(shape.nranks, rank, kChunks * shape.channels);
  if (!chain.first) builder.blocks(1, 0);
  for (int c = 0; c < shape.channels; ++c) {
    LaneBuilder& lane = builder.lane(c);
    const int begin = c * kChunks;
    lane.peers(chain.prev, chain.next);
    if (chain.first) {
      lane.recv_reduce_copy(begin, begin).final().repeat(kChunks, 1);
    } else if (chain.last) {
      lane.send(begin).repeat(kChunks, 1);
    } else {
      lane.recv_reduce_send(begin).repeat(kChunks, 1);
    }
  }
  return std::move(builder).build();
}

bool supports(const Shape& shape) { return chunks_fit(shape); }
bool supports_chain(const Shape& shape) {
  return static_cast<long>(shape.channels) * kPipelineChunks <= kMaxChunks;
}

/// Returns the costs of a reduce-scatter or an all-gather; with `halves` 2 of an allreduce.
Cost ring_cost(const Shape& shape, double halves, double reduced) {
  const double n = shape.nranks;
  return {.rounds = halves * (n - 1),
          .volume = halves * (n - 1) / n,
          .sent = halves * (n - 1) / n,
          .received = halves * (n - 1) / n,
          .mean = halves * (n - 1) / n,
          .fifos = 1,
          .reduced = reduced * (n - 1) / n,
          .messages = halves * (n - 1) * shape.channels,
          .window = n * shape.channels};
}
Cost allreduce_cost(const Shape& shape) { return ring_cost(shape, 2, 1); }
Cost reduce_scatter_cost(const Shape& shape) { return ring_cost(shape, 1, 1); }
Cost all_gather_cost(const Shape& shape) { return ring_cost(shape, 1, 0); }

Cost broadcast_cost(const Shape& shape) {
  const double chunks = kPipelineChunks * shape.channels;
  const double n = shape.nranks;
  return {.rounds = n - 1,
          .volume = 1,
          .sent = 1,
          .received = n > 2 ? 1.0 : 0.0,
          .mean = (n - 1) / n,
          .fifos = (n - 1) / n,
          .messages = chunks,
          .window = chunks,
          // a single link: as in a tree of two ranks
          .fill = n > 2 ? (shape.nranks - 2.0) / kPipelineChunks : 1,
          .streams = true};
}
Cost reduce_cost(const Shape& shape) { return reduction_of(broadcast_cost(shape)); }

constexpr std::array kAlgorithms{
    Algorithm{"ring", Collective::kAllReduce, supports, build_allreduce, allreduce_cost},
    Algorithm{"ring", Collective::kReduceScatter, supports, build_reduce_scatter,
              reduce_scatter_cost},
    Algorithm{"ring", Collective::kAllGather, supports, build_all_gather, all_gather_cost},
    Algorithm{"ring", Collective::kBroadcast, supports_chain, build_broadcast, broadcast_cost},
    Algorithm{"ring", Collective::kReduce, supports_chain, build_reduce, reduce_cost},
};

} // namespace

std::span<const Algorithm> ring_algorithms() { return kAlgorithms; }

} // namespace whorl
