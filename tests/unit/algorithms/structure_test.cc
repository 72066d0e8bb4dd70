// Tests of properties that the verifier does not check: who sends to whom, in which order, how
// balanced.
#include <map>
#include <set>

#include "algorithms/common.h"
#include "support.h"

namespace whorl {
namespace {

Schedule build(std::string_view algorithm, Collective collective, const Shape& shape, int rank) {
  return build_schedule(*find_algorithm(collective, algorithm), shape, rank);
}

/// Returns the number of chunks that `schedule` sends to each rank.
std::map<int, int> sent_to(const Schedule& schedule) {
  std::map<int, int> chunks;
  for (const Lane& lane : schedule.lanes) {
    for (const Step& step : lane.steps) {
      for (int i = 0; i < step.fan_out(); ++i) {
        chunks[static_cast<int>(lane.peers[static_cast<std::size_t>(step.tx + i)])] +=
            step.count * step.repeat;
      }
    }
  }
  return chunks;
}

TEST(Ring, IsFiveStepsWhateverTheNumberOfRanks) {
  for (const int n : {4, 64, 1000}) {
    const Schedule schedule = build("ring", Collective::kAllReduce, {.nranks = n}, 2);
    ASSERT_EQ(schedule.lanes.size(), 1U);
    // Two repetitions may wrap; chunks wrap with the whole buffer, so that no step is cut.
    EXPECT_EQ(schedule.lanes[0].steps.size(), 5U);
  }
}

TEST(Ring, FollowsTheOrderOfTheShape) {
  const std::vector<int> order{3, 0, 2, 1, 4};
  const int n = static_cast<int>(order.size());
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
        Collective::kBroadcast, Collective::kReduce}) {
    const Shape shape{.nranks = n, .root = 2, .channels = 2, .order = order};
    for (int i = 0; i < n; ++i) {
      const int rank = order[static_cast<std::size_t>(i)];
      const int next = order[static_cast<std::size_t>((i + 1) % n)];
      const int prev = order[static_cast<std::size_t>((i + n - 1) % n)];
      const auto sent = sent_to(build("ring", collective, shape, rank));
      // A chain ends where it comes back to the root, and begins at the rank behind the root.
      if (collective == Collective::kBroadcast && next == shape.root) continue;
      if (collective == Collective::kReduce && rank == shape.root) continue;
      ASSERT_EQ(sent.size(), 1U);
      EXPECT_EQ(sent.begin()->first, collective == Collective::kReduce ? prev : next);
    }
  }
}

TEST(Fans, CombineAllRanksInOneStep) {
  // Hence operands come in the order of the ranks, the same everywhere, with a single rounding.
  const std::pair<Collective, std::string_view> algorithms[] = {
      {Collective::kAllReduce, "oneshot"},
      {Collective::kAllReduce, "twoshot"},
      {Collective::kReduceScatter, "direct"}};
  for (const auto& [collective, name] : algorithms) {
    for (const Schedule& schedule : build_all(*find_algorithm(collective, name), {.nranks = 9})) {
      int reductions = 0;
      for (const Step& step : schedule.lanes[0].steps) {
        if (!step.reduces()) continue;
        ++reductions;
        EXPECT_EQ(step.fan_in(), 8);
      }
      EXPECT_EQ(reductions, 1);
    }
  }
}

TEST(DoubleTree, SharesTheWork) {
  for (int n = 2; n <= 130; ++n) {
    const Shape shape{.nranks = n, .channels = 2};
    int leaves_of_both = 0;
    for (const Schedule& schedule :
         build_all(*find_algorithm(Collective::kAllReduce, "tree"), shape)) {
      ASSERT_EQ(schedule.lanes.size(), 2U);
      int interior = 0;
      for (const Lane& lane : schedule.lanes) {
        interior += std::any_of(lane.steps.begin(), lane.steps.end(),
                                [](const Step& step) { return step.reduces(); });
        EXPECT_LE(lane.peers.size(), 3U);
      }
      EXPECT_LE(interior, 1) << "rank " << schedule.rank << " of " << n;
      leaves_of_both += interior == 0;
    }
    EXPECT_EQ(leaves_of_both, n % 2) << n;
  }
}

TEST(Circulant, SendsHalfOfItsBlocksToTheNearestRank) {
  for (int n = 2; n <= 129; ++n) {
    const int rank = n / 3;
    const auto sent = sent_to(build("circulant", Collective::kReduceScatter, {.nranks = n}, rank));
    EXPECT_EQ(static_cast<int>(sent.size()), ceil_log2(n)) << n;
    for (const auto& [peer, chunks] : sent) {
      const int distance = wrap(peer - rank, n);
      EXPECT_TRUE(is_power_of_two(distance)) << n;
      // Number of offsets below n whose lowest set bit is the distance.
      EXPECT_EQ(chunks, (n - 1 + distance) / (2 * distance)) << n << " " << distance;
    }
  }
}

TEST(HalvingDoubling, SendsHalfOfItsVectorToTheNearestRank) {
  const int n = 32;
  for (const Schedule& schedule :
       build_all(*find_algorithm(Collective::kAllReduce, "halving_doubling"), {.nranks = n})) {
    const auto sent = sent_to(schedule);
    for (int bit = 1; bit < n; bit *= 2) {
      EXPECT_EQ(sent.at(schedule.rank ^ bit), 2 * n / (2 * bit)) << "there and back";
    }
  }
}

TEST(Direct, DoesNotStartWithTheSameRank) {
  for (const auto collective : {Collective::kAllToAll, Collective::kReduceScatter}) {
    std::vector<int> first(12, 0);
    for (const Schedule& schedule :
         build_all(*find_algorithm(collective, "direct"), {.nranks = 12})) {
      const Lane& lane = schedule.lanes[0];
      ++first[lane.peers[lane.steps[0].tx]];
    }
    EXPECT_EQ(first, std::vector<int>(12, 1));
  }
}

/// Returns whether a rank that has an output receives from all peers of each lane and so from all
/// ranks, and whether each lane sends first to all whom it sends to.
bool tells_all(const Schedule& schedule) {
  std::set<std::uint32_t> heard;
  for (const Lane& lane : schedule.lanes) {
    std::set<std::uint32_t> told, heard_here;
    bool first_part = true;
    for (const Step& step : lane.steps) {
      for (int i = 0; i < step.fan_in(); ++i) {
        heard_here.insert(lane.peers[static_cast<std::size_t>(step.rx + i)]);
      }
      if (step.receives() || step.writes_dst()) first_part = false;
      for (int i = 0; i < step.fan_out(); ++i) {
        const std::uint32_t peer = lane.peers[static_cast<std::size_t>(step.tx + i)];
        if (first_part) told.insert(peer);
        if (!told.contains(peer)) return false;
      }
    }
    const std::set<std::uint32_t> peers(lane.peers.begin(), lane.peers.end());
    if (schedule.output_chunks > 0 && heard_here != peers) return false;
    heard.merge(heard_here);
  }
  return schedule.output_chunks == 0 ||
         heard.size() + 1 == static_cast<std::size_t>(schedule.nranks);
}

TEST(FirstMessages, TellAllWhereAnAlgorithmSaysSo) {
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective != Collective::kAllGather &&
        algorithm.collective != Collective::kAllToAll &&
        algorithm.collective != Collective::kGather) {
      EXPECT_FALSE(algorithm.tells_all) << algorithm.name;
      continue;
    }
    bool all = true;
    for (const int n : {2, 3, 5, 8, 16}) {
      for (const int channels : {1, 3}) {
        Shape shape{.nranks = n, .channels = channels};
        if (n % 4 == 0)
          shape.dims = {{.size = 4, .algorithm = {}}, {.size = n / 4, .algorithm = {}}};
        if (!algorithm.supports(shape)) continue;
        for (const Schedule& schedule : build_all(algorithm, shape)) {
          all = all && tells_all(schedule);
        }
      }
    }
    EXPECT_EQ(algorithm.tells_all, all) << name_of(algorithm.collective) << " " << algorithm.name;
  }
}

TEST(Chunks, OfChannelsAreInterleaved) {
  const Schedule schedule = build("ring", Collective::kAllGather, {.nranks = 6, .channels = 3}, 4);
  for (const Lane& lane : schedule.lanes) {
    for (const Step& step : lane.steps) {
      if (step.writes_dst()) {
        EXPECT_EQ(step.dst_chunk % 3, lane.channel);
      }
      if (step.repeat > 1) {
        EXPECT_EQ(step.stride, -3);
      }
    }
  }
}

} // namespace
} // namespace whorl
