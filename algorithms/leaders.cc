// Leaders: the first rank of each host reduces its host's vectors, only the leaders exchange, by
// recursive doubling, and each hands the result to its host. Every message between hosts carries
// the whole vector, and there are ⌈log2 m⌉ for each of m hosts instead of as many for each rank:
// for a few bytes over a network where a message costs processor time that ranks of a host compete
// for. (Single-leader form of the SMP-aware algorithms of MPI libraries.) With groups of g ranks:
//
//     allreduce    L(m) + 2 rounds, (g−1)·n + L(m)·n bytes received by a leader
//
//     ranks 0–3, 4–7:   1, 2, 3 ──▶ 0         5, 6, 7 ──▶ 4
//                                   0 ◀─────────────────▶ 4
//                       1, 2, 3 ◀── 0         5, 6, 7 ◀── 4
#include "algorithms/leaders.h"

#include <array>

#include "algorithms/common.h"
#include "algorithms/embed.h"
#include "algorithms/groups.h"

namespace whorl {
namespace {

const Algorithm& exchange() { return *find_algorithm(Collective::kAllReduce, "doubling"); }

Schedule build_allreduce(const Shape& shape, int rank) {
  const Groups groups(shape);
  const int group = groups.of(rank), place = rank - groups.first(group);
  const std::vector<int> members = groups.members(group);
  const bool alone = members.size() == 1;
  const auto part = [&](Collective collective) {
    return find_algorithm(collective, "direct")->build_place({.nranks = groups.size(group)}, place);
  };
  const Schedule collect = part(Collective::kReduce), hand_out = part(Collective::kBroadcast);
  std::vector<int> leaders;
  for (int i = 0; i < groups.count(); ++i) leaders.push_back(groups.first(i));

  Schedule schedule;
  schedule.rank = rank;
  schedule.nranks = shape.nranks;
  schedule.chunks_per_block = static_cast<std::uint16_t>(shape.channels);
  schedule.input_chunks = schedule.output_chunks = schedule.chunks_per_block;
  const auto add_scratch = [&](std::size_t count, int holds) {
    const Location added{Buffer::kScratch, static_cast<int>(schedule.scratch.size()), 1};
    schedule.scratch.resize(schedule.scratch.size() + count, static_cast<std::uint16_t>(holds));
    return added;
  };
  for (int c = 0; c < shape.channels; ++c) {
    Lane lane{.channel = static_cast<std::uint16_t>(c)};
    const Location input{Buffer::kInput, c, 1}, output{Buffer::kOutput, c, 1};
    if (place > 0) {
      embed(collect, {.ranks = members, .input = input, .output = output}, lane);
      embed(hand_out, {.ranks = members, .input = input, .output = output}, lane);
      schedule.lanes.push_back(std::move(lane));
      continue;
    }
    const Location sum = alone ? input : add_scratch(1, c); // sum of the group
    const Schedule between = exchange().build_place({.nranks = groups.count()}, group);
    if (!alone) embed(collect, {.ranks = members, .input = input, .output = sum}, lane);
    embed(between,
          {.ranks = leaders,
           .input = sum,
           .output = output,
           .scratch = add_scratch(between.scratch.size(), c),
           .complete = true},
          lane);
    if (!alone) embed(hand_out, {.ranks = members, .input = output, .output = output}, lane);
    schedule.lanes.push_back(std::move(lane));
  }
  return schedule;
}

bool supports(const Shape& shape) {
  if (!Groups::exist(shape)) return false;
  const Groups groups(shape);
  const int peers = groups.largest() - 1 + 2 * (floor_log2(groups.count()) + 1);
  return peers <= kMaxPeers && shape.channels * 4 <= kMaxChunks &&
         exchange().supports({.nranks = groups.count()});
}

/// Returns the costs; the leader of the largest group is the busiest rank.
Cost cost(const Shape& shape) {
  const Groups groups(shape);
  const Cost between = exchange().cost({.nranks = groups.count()});
  const double members = groups.largest() - 1, m = groups.count(), n = shape.nranks;
  return {
      .rounds = between.rounds + 2,
      .volume = between.volume + members,
      .sent = between.sent + members,
      .received = between.received + members,
      .mean = (between.mean * m + 2 * (n - m)) / n,
      .fifos = (between.fifos * m + 2 * (n - m)) / n,
      .reduced = between.reduced + members,
      .merged = members - 1,
      .copied = between.copied,
      .messages = between.messages * shape.channels + members * shape.channels,
      .window = static_cast<double>(shape.channels),
      .inner = {LevelPart{.rounds = 2, .volume = members, .messages = members * shape.channels}},
      .outer_ranks = m / n};
}

Shape of_one_lane(Shape shape) {
  shape.channels = 1;
  return shape;
}
// Builds a barrier: the allreduce of nothing, for which one lane is enough.
Schedule build_barrier(const Shape& shape, int rank) {
  return build_allreduce(of_one_lane(shape), rank);
}
Cost barrier_cost(const Shape& shape) { return cost(of_one_lane(shape)); }

constexpr std::array kAlgorithms{
    Algorithm{"leaders", Collective::kAllReduce, supports, build_allreduce, cost},
    Algorithm{"leaders", Collective::kBarrier, supports, build_barrier, barrier_cost},
};

} // namespace

std::span<const Algorithm> leaders_algorithms() { return kAlgorithms; }

} // namespace whorl
