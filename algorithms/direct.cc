// Direct: every message goes straight from the rank that has its data to the one that needs it. One
// round and the least volume for collectives that move each block once; the busiest rank handles
// p−1 messages, so this is for few ranks or much data. The folklore "linear" or "pairwise" forms,
// e.g. in R. Thakur, R. Rabenseifner, W. Gropp ("Optimization of Collective Communication
// Operations in MPICH", 2005).
//
//     reduce-scatter   1 round, (p−1)/p·n bytes sent, (p−1)/p·n reduced, in ascending rank order
//     all-gather       1 round, (p−1)/p·n bytes sent
//     alltoall         1 round, (p−1)/p·n bytes sent
//     broadcast        1 round, (p−1)·n bytes sent by root
//     reduce           1 round, (p−1)·n bytes received and reduced by root
//     gather, scatter  1 round, (p−1)/p·n bytes received or sent by root
//     send, recv       1 round, n bytes
//
//     rank 1 of 4:   sends to 2, 3, 0        receives from 0, 3, 2
//     rank 2 of 4:   sends to 3, 0, 1        receives from 1, 0, 3
//
// Partners are staggered like this, so that not all ranks start with rank 0. All sends come before
// all receives: each uses one slot of a separate FIFO, so no rank waits for another's progress.
#include "algorithms/direct.h"

#include <array>

#include "algorithms/common.h"

namespace whorl {
namespace {

/// Returns chunk c of block `block` where each block has one chunk for each channel.
int chunk_of(const Shape& shape, int block, int c) { return block * shape.channels + c; }

Schedule build_reduce_scatter(const Shape& shape, int rank) {
  const int n = shape.nranks;
  const std::vector<int> others = other_ranks(n, rank);
  ScheduleBuilder builder(n, rank, shape.channels);
  builder.blocks(n, 1);
  for (int c = 0; c < shape.channels; ++c) {
    LaneBuilder& lane = builder.lane(c);
    for (int k = 1; k < n; ++k) {
      const int peer = wrap(rank + k, n);
      lane.peers(peer, peer).send(chunk_of(shape, peer, c));
    }
    lane.peers(others, others).recv_reduce_copy(chunk_of(shape, rank, c), c).final();
  }
  return std::move(builder).build();
}

Schedule build_all_gather(const Shape& shape, int rank) {
  const int n = shape.nranks;
  const std::vector<int> others = other_ranks(n, rank);
  ScheduleBuilder builder(n, rank, shape.channels);
  builder.blocks(1, n);
  for (int c = 0; c < shape.channels; ++c) {
    LaneBuilder& lane = builder.lane(c);
    lane.peers(others, others).send(c).copy(c, chunk_of(shape, rank, c));
    for (int k = 1; k < n; ++k) {
      const int peer = wrap(rank - k, n);
      lane.peers(peer, peer).recv_copy(chunk_of(shape, peer, c));
    }
  }
  return std::move(builder).build();
}

Schedule build_alltoall(const Shape& shape, int rank) {
  const int n = shape.nranks;
  ScheduleBuilder builder(n, rank, shape.channels);
  builder.blocks(n, n);
  for (int c = 0; c < shape.channels; ++c) {
    LaneBuilder& lane = builder.lane(c);
    for (int k = 1; k < n; ++k) {
      const int peer = wrap(rank + k, n);
      lane.peers(peer, peer).send(chunk_of(shape, peer, c));
    }
    lane.copy(chunk_of(shape, rank, c), chunk_of(shape, rank, c));
    for (int k = 1; k < n; ++k) {
      const int peer = wrap(rank - k, n);
      lane.peers(peer, peer).recv_copy(chunk_of(shape, peer, c));
    }
  }
  return std::move(builder).build();
}

Schedule build_broadcast(const Shape& shape, int rank) {
  const int n = shape.nranks;
  const std::vector<int> others = other_ranks(n, rank);
  ScheduleBuilder builder(n, rank, shape.channels);
  if (rank != shape.root) builder.blocks(0, 1);
  for (int c = 0; c < shape.channels; ++c) {
    if (rank == shape.root) {
      builder.lane(c).peers(others, others).send(c).copy(c, c);
    } else {
      builder.lane(c).peers(shape.root, shape.root).recv_copy(c);
    }
  }
  return std::move(builder).build();
}

Schedule build_reduce(const Shape& shape, int rank) {
  const int n = shape.nranks;
  const std::vector<int> others = other_ranks(n, rank);
  ScheduleBuilder builder(n, rank, shape.channels);
  if (rank != shape.root) builder.blocks(1, 0);
  for (int c = 0; c < shape.channels; ++c) {
    if (rank == shape.root) {
      builder.lane(c).peers(others, others).recv_reduce_copy(c, c).final();
    } else {
      builder.lane(c).peers(shape.root, shape.root).send(c);
    }
  }
  return std::move(builder).build();
}

/// Builds gather or scatter, which mirror each other: where one sends, the other receives.
Schedule build_rooted(const Shape& shape, int rank, bool gather) {
  const int n = shape.nranks;
  const bool is_root = rank == shape.root;
  ScheduleBuilder builder(n, rank, shape.channels);
  builder.blocks(gather ? 1 : (is_root ? n : 0), gather ? (is_root ? n : 0) : 1);
  for (int c = 0; c < shape.channels; ++c) {
    LaneBuilder& lane = builder.lane(c);
    if (!is_root) {
      lane.peers(shape.root, shape.root);
      gather ? lane.send(c) : lane.recv_copy(c);
      continue;
    }
    // The root copies its own block while others are on their way: before it receives, after it
    // sends.
    const int own = chunk_of(shape, rank, c);
    if (gather) lane.copy(c, own);
    for (int k = 1; k < n; ++k) {
      const int peer = wrap(rank + k, n);
      lane.peers(peer, peer);
      gather ? lane.recv_copy(chunk_of(shape, peer, c)) : lane.send(chunk_of(shape, peer, c));
    }
    if (!gather) lane.copy(own, c);
  }
  return std::move(builder).build();
}
Schedule build_gather(const Shape& shape, int rank) { return build_rooted(shape, rank, true); }
Schedule build_scatter(const Shape& shape, int rank) { return build_rooted(shape, rank, false); }

/// Builds a point-to-point transfer as a collective of two ranks: 0 sends, 1 receives.
Schedule build_point_to_point(const Shape& shape, int rank) {
  ScheduleBuilder builder(2, rank, shape.channels);
  rank == 0 ? builder.blocks(1, 0) : builder.blocks(0, 1);
  for (int c = 0; c < shape.channels; ++c) {
    LaneBuilder& lane = builder.lane(c);
    lane.peers(1, 0);
    rank == 0 ? lane.send(c) : lane.recv_copy(c);
  }
  return std::move(builder).build();
}

bool supports(const Shape& shape) { return peers_fit(shape) && chunks_fit(shape); }
bool supports_two(const Shape& shape) { return shape.nranks == 2 && chunks_fit(shape); }

/// Returns the costs of a collective in which each rank, or the root, handles one message for every
/// other rank.
Cost direct_cost(const Shape& shape, bool blocks, bool reduced) {
  const double n = shape.nranks;
  const double volume = blocks ? (n - 1) / n : n - 1;
  return {.rounds = 1,
          .volume = volume,
          .sent = volume,
          .received = volume,
          .mean = volume,
          .fifos = n - 1,
          .reduced = reduced ? volume : 0,
          .merged = reduced ? volume * (n - 2) / (n - 1) : 0,
          .messages = (n - 1) * shape.channels,
          .window = (blocks ? n : 1) * shape.channels};
}
Cost reduce_scatter_cost(const Shape& shape) { return direct_cost(shape, true, true); }
Cost block_cost(const Shape& shape) { return direct_cost(shape, true, false); }
/// Returns the costs if the root sends, or receives, all of it.
Cost rooted(Cost cost, const Shape& shape, bool collects) {
  (collects ? cost.sent : cost.received) = 0;
  cost.mean /= shape.nranks;
  cost.fifos /= shape.nranks;
  cost.streams = true;
  return cost;
}
Cost reduce_cost(const Shape& shape) {
  return rooted(direct_cost(shape, false, true), shape, true);
}
Cost vector_cost(const Shape& shape) {
  return rooted(direct_cost(shape, false, false), shape, false);
}
Cost gather_cost(const Shape& shape) {
  return rooted(direct_cost(shape, true, false), shape, true);
}
Cost scatter_cost(const Shape& shape) {
  return rooted(direct_cost(shape, true, false), shape, false);
}

constexpr std::array kAlgorithms{
    Algorithm{"direct", Collective::kReduceScatter, supports, build_reduce_scatter,
              reduce_scatter_cost, true},
    Algorithm{"direct", Collective::kAllGather, supports, build_all_gather, block_cost,
              /*at_once=*/false, /*tells_all=*/true},
    Algorithm{"direct", Collective::kAllToAll, supports, build_alltoall, block_cost,
              /*at_once=*/false, /*tells_all=*/true},
    Algorithm{"direct", Collective::kBroadcast, supports, build_broadcast, vector_cost},
    Algorithm{"direct", Collective::kReduce, supports, build_reduce, reduce_cost, true},
    Algorithm{"direct", Collective::kGather, supports, build_gather, gather_cost,
              /*at_once=*/false, /*tells_all=*/true},
    Algorithm{"direct", Collective::kScatter, supports, build_scatter, scatter_cost},
    Algorithm{"direct", Collective::kSend, supports_two, build_point_to_point, vector_cost},
    Algorithm{"direct", Collective::kRecv, supports_two, build_point_to_point, vector_cost},
};

} // namespace

std::span<const Algorithm> direct_algorithms() { return kAlgorithms; }

} // namespace whorl
