#include "tests/unit/schedule/handmade.h"

#include <numeric>
#include <utility>

#include "schedule/builder.h"

namespace whorl::handmade {
namespace {

template <class Fill>
std::vector<Schedule> for_each_rank(int n, int chunks, Fill&& fill) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < n; ++rank) {
    ScheduleBuilder builder(n, rank, chunks);
    fill(builder, rank);
    schedules.push_back(std::move(builder).build());
  }
  return schedules;
}

std::vector<int> others(int n, int rank) {
  std::vector<int> ranks;
  for (int r = 0; r < n; ++r) {
    if (r != rank) ranks.push_back(r);
  }
  return ranks;
}

std::vector<int> children(int n, int rank) {
  std::vector<int> ranks;
  for (int child : {2 * rank + 1, 2 * rank + 2}) {
    if (child < n) ranks.push_back(child);
  }
  return ranks;
}

} // namespace

std::vector<Schedule> ring(int n) {
  return for_each_rank(n, n, [n](ScheduleBuilder& builder, int me) {
    builder.lane(0)
        .peers((me + 1) % n, (me + n - 1) % n)
        .send(me - 1)
        .recv_reduce_send(me - 2)
        .repeat(n - 2, -1)
        .recv_reduce_copy_send(me, me)
        .final()
        .recv_copy_send(me - 1)
        .repeat(n - 2, -1)
        .recv_copy(me + 1);
  });
}

std::vector<Schedule> two_shot(int n) {
  return for_each_rank(n, n, [n](ScheduleBuilder& builder, int me) {
    LaneBuilder& lane = builder.lane(0);
    const std::vector<int> peers = others(n, me);
    for (const int peer : peers) lane.peers(peer, peer).send(peer);
    lane.peers(peers, peers).recv_reduce_copy_send(me, me).final();
    for (const int peer : peers) lane.peers(peer, peer).recv_copy(peer);
  });
}

std::vector<Schedule> tree(int n, int chunks) {
  return for_each_rank(n, chunks, [n, chunks](ScheduleBuilder& builder, int me) {
    LaneBuilder& lane = builder.lane(0);
    const std::vector<int> down = children(n, me), up{(me - 1) / 2};
    if (me == 0) {
      lane.peers(down, down).recv_reduce_copy_send(0, 0).repeat(chunks, 1).final();
    } else if (down.empty()) {
      lane.peers(up, up).send(0).repeat(chunks, 1).recv_copy(0).repeat(chunks, 1);
    } else {
      lane.peers(up, down).recv_reduce_send(0).repeat(chunks, 1);
      lane.peers(down, up).recv_copy_send(0).repeat(chunks, 1);
    }
  });
}

std::vector<Schedule> two_lane_tree(int n) {
  return for_each_rank(n, 2, [n](ScheduleBuilder& builder, int me) {
    const std::vector<int> down = children(n, me), up{(me - 1) / 2}, none;
    LaneBuilder& reduce = builder.lane(0);
    LaneBuilder& broadcast = builder.lane(1);
    broadcast.read(Buffer::kOutput).wait(0, 0);
    if (me == 0) {
      reduce.peers(none, down).recv_reduce_copy(0, 0).count(2).final();
      broadcast.peers(down, none).send(0).count(2);
    } else if (down.empty()) {
      reduce.peers(up, none).send(0).count(2);
      broadcast.peers(none, up).recv_copy(0).count(2);
    } else {
      reduce.peers(up, down).recv_reduce_send(0).count(2);
      broadcast.peers(down, up).recv_copy_send(0).count(2);
    }
  });
}

std::vector<Schedule> one_shot(int n) {
  return for_each_rank(n, 2, [n](ScheduleBuilder& builder, int me) {
    const std::vector<int> peers = others(n, me);
    for (std::size_t p = 0; p < peers.size(); ++p) builder.scratch({0, 1});
    LaneBuilder& lane = builder.lane(0);
    lane.peers(peers, peers).send(0).repeat(2, 1);
    lane.copy(0, 0).count(2);
    // All are received before the first is reduced: in place, the reduction overwrites what this
    // rank sends, and with published sources it waits until all others have received that.
    lane.read(Buffer::kScratch).write(Buffer::kScratch);
    for (int p = 0; p < n - 1; ++p) {
      const int peer = peers[static_cast<std::size_t>(p)];
      lane.peers(peer, peer).recv_copy(2 * p).repeat(2, 1);
    }
    lane.write(Buffer::kOutput);
    for (int p = 0; p < n - 1; ++p) lane.reduce(2 * p, 0).count(2);
    lane.final();
  });
}

std::vector<Schedule> ring_all_gather(int n) {
  return for_each_rank(n, 2, [n](ScheduleBuilder& builder, int me) {
    builder.blocks(1, n);
    builder.lane(0)
        .copy(0, 2 * me)
        .count(2)
        .range({.scale = 2})
        .peers((me + 1) % n, (me + n - 1) % n)
        .send(0)
        .recv_copy_send(me - 1)
        .repeat(n - 2, -1)
        .recv_copy(me + 1);
  });
}

std::vector<Schedule> all_to_all(int n) {
  return for_each_rank(n, 1, [n](ScheduleBuilder& builder, int me) {
    builder.blocks(n, n);
    LaneBuilder& lane = builder.lane(0);
    lane.copy(me, me);
    for (int i = 1; i < n; ++i) lane.peers((me + i) % n, 0).send(me + i);
    for (int i = 1; i < n; ++i) lane.peers(0, (me + n - i) % n).recv_copy(me - i);
  });
}

std::vector<Schedule> scatter(int n, int root) {
  return for_each_rank(n, 1, [n, root](ScheduleBuilder& builder, int me) {
    builder.blocks(me == root ? n : 0, 1);
    LaneBuilder& lane = builder.lane(0);
    if (me != root) {
      lane.peers(0, root).recv_copy(0);
      return;
    }
    lane.copy(me, 0);
    for (const int peer : others(n, me)) lane.peers(peer, 0).send(peer);
  });
}

std::vector<Named> all(int n) {
  const CollectiveSpec allreduce;
  return {{"ring", allreduce, ring(n)},
          {"two_shot", allreduce, two_shot(n)},
          {"tree", allreduce, tree(n, 2)},
          {"two_lane_tree", allreduce, two_lane_tree(n)},
          {"one_shot", allreduce, one_shot(n)},
          {"ring_all_gather", {.collective = Collective::kAllGather}, ring_all_gather(n)},
          {"all_to_all", {.collective = Collective::kAllToAll}, all_to_all(n)},
          {"scatter", {.collective = Collective::kScatter, .root = n - 1}, scatter(n, n - 1)}};
}

} // namespace whorl::handmade
