// Tests that the closed forms of the costs agree with the schedules.
#include <initializer_list>
#include <numeric>

#include "algorithms/cost_model.h"
#include "support.h"

namespace whorl {
namespace {

using test::Load;
using test::text;

class Costs : public ::testing::TestWithParam<Algorithm> {
 protected:
  /// Compares the costs with all counts of a verified window. With `bound`, costs are sums over
  /// levels of each level's busiest rank, so that no single rank need be as busy as the cost says.
  void compare(const Shape& shape, bool bound) {
    const Algorithm& algorithm = GetParam();
    const std::vector<Schedule> schedules = build_all(algorithm, shape);
    const auto report = verify(schedules, {algorithm.collective, shape.root});
    ASSERT_TRUE(report.ok()) << text(algorithm, shape) << ": " << report.status().message();
    Load busiest;
    int chunks = 1, total = 0, max_moved = 0;
    for (const Schedule& schedule : schedules) {
      const Load load = test::load_of(schedule);
      total += load.sent_chunks;
      max_moved = std::max(max_moved, load.sent_chunks + load.received_chunks);
      busiest.sent_chunks = std::max({busiest.sent_chunks, load.sent_chunks, load.received_chunks});
      busiest.sent_messages =
          std::max({busiest.sent_messages, load.sent_messages, load.received_messages});
      busiest.reduced_chunks = std::max(busiest.reduced_chunks, load.reduced_chunks);
      chunks = std::max<int>({chunks, schedule.input_chunks, schedule.output_chunks});
    }
    const Cost cost = algorithm.cost(shape);
    const std::string what = text(algorithm, shape);
    const double window = static_cast<double>(chunks) / schedules[0].message_chunks;
    // Halves of a folded vector, and blocks on both sides of rank 0, may need two messages.
    const double split = cost.messages * 0.999 + 1 + shape.channels * 2;
    EXPECT_NEAR(cost.window, window, 1e-9) << what;
    EXPECT_NEAR(cost.mean * chunks * shape.nranks, total, 1e-6) << what;
    EXPECT_GE(std::max(cost.sent, cost.received), cost.volume - 1e-9) << what;
    if (bound) {
      EXPECT_GE(cost.volume * chunks, busiest.sent_chunks - 1e-6) << what;
      EXPECT_LE(cost.volume * chunks, 2 * busiest.sent_chunks + 1e-6) << what;
      EXPECT_GE(cost.reduced * chunks, busiest.reduced_chunks - 1e-6) << what;
      EXPECT_GE(split, busiest.sent_messages) << what;
      EXPECT_GE(cost.rounds, report->rounds) << what;
      return;
    }
    EXPECT_NEAR(cost.volume * chunks, busiest.sent_chunks, 1e-6) << what;
    EXPECT_LE(cost.merged, std::max(0.0, cost.reduced)) << what;
    EXPECT_GE((cost.sent + cost.received) * chunks, max_moved * 0.999) << what;
    // Exact, except for the trees of a broadcast or reduce, which are overstated by up to a third.
    const double max_over = algorithm.name == "tree" ? 4.0 / 3.0 : 1.001;
    EXPECT_LE((cost.sent + cost.received) * chunks, max_moved * max_over + 1e-6) << what;
    EXPECT_NEAR(cost.reduced * chunks, busiest.reduced_chunks, 1e-6) << what;
    EXPECT_LE(report->max_sent_chunks, busiest.sent_chunks) << what;
    EXPECT_GE(busiest.sent_messages, cost.messages - 1e-6) << what;
    EXPECT_LE(busiest.sent_messages, split) << what;
    EXPECT_EQ(cost.rounds, report->rounds) << what;
  }

  /// Compares where a channel has several lanes.
  void compare_many_ranks(std::initializer_list<int> ranks) {
    if (GetParam().collective != Collective::kAllToAll) return;
    for (const int n : ranks) {
      const Shape shape{.nranks = n, .channels = 2};
      if (GetParam().supports(shape)) compare(shape, false);
    }
  }
};

TEST_P(Costs, AreThoseOfTheSchedules) {
  const bool hierarchical = GetParam().name == "hierarchical";
  const bool grouped = test::needs_dims(GetParam());
  for (int n = 1; n <= 33; ++n) {
    for (int channels = 1; channels <= 3; ++channels) {
      const int root = has_root(GetParam().collective) ? n / 2 : 0;
      Shape shape{.nranks = n, .root = root, .channels = channels};
      for (const int inner : grouped ? std::vector{2, 3, 4} : std::vector{n}) {
        if (grouped) shape.dims = {{inner}, {n / inner}};
        if (!GetParam().supports(shape)) continue;
        compare(shape, hierarchical);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(Costs, AreThoseOfTheSchedulesOfUnequalGroups) {
  if (!test::needs_dims(GetParam())) return;
  for (const std::vector<int>& sizes : std::vector<std::vector<int>>{{5, 3},
                                                                     {3, 5},
                                                                     {1, 4},
                                                                     {2, 2, 1},
                                                                     {7, 1},
                                                                     {1, 1, 5},
                                                                     {8, 7, 6, 5},
                                                                     {16, 15},
                                                                     {9, 3, 9, 9},
                                                                     {20, 1, 2},
                                                                     {17, 18},
                                                                     {1, 2, 3, 4, 5, 6},
                                                                     {8, 8, 8, 7}}) {
    for (int channels = 1; channels <= 2; ++channels) {
      const int n = std::accumulate(sizes.begin(), sizes.end(), 0);
      for (int root = 0; root < n; root += has_root(GetParam().collective) ? n / 3 : n) {
        const Shape shape{.nranks = n, .root = root, .channels = channels, .groups = sizes};
        ASSERT_TRUE(GetParam().supports(shape));
        compare(shape, true);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(Costs, AreThoseOfTheSchedulesOfManyRanks) { compare_many_ranks({257}); }
TEST_P(Costs, AreThoseOfTheSchedulesOfManyRanksFull) { compare_many_ranks({256, 300, 511}); }

TEST_P(Costs, PredictionsGrowWithSize) {
  for (const int n : {2, 3, 8, 24}) {
    const Shape shape{.nranks = n, .channels = 2, .dims = {{2}, {n / 2}}};
    if (!GetParam().supports(shape)) continue;
    const Predictor predictor(GetParam(), shape, {});
    double last = 0;
    for (std::size_t bytes = 1; bytes <= (std::size_t{1} << 32); bytes *= 4) {
      const double us = predictor.predict(bytes).us;
      EXPECT_GT(us, last) << text(GetParam(), shape) << " " << bytes;
      last = us;
    }
    EXPECT_GT(predictor.predict(0).us, 0) << text(GetParam(), shape);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Costs, ::testing::ValuesIn(all_algorithms()), name_of_test);

/// Returns costs with one level for each link, innermost first.
LinkCosts with_links(std::initializer_list<Link> links) {
  LinkCosts costs;
  costs.count = 0;
  for (const Link& link : links) costs.levels.at(costs.count++).link = link;
  return costs;
}

std::string_view chosen(Collective collective, const Shape& shape, std::size_t bytes,
                        const LinkCosts& links = {}) {
  const Algorithm* algorithm = choose_algorithm(predictors(collective, shape, links), bytes);
  return algorithm == nullptr ? "none" : algorithm->name;
}

TEST(Choice, FollowsTheSize) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const Shape few{.nranks = 4, .channels = 2};
  EXPECT_EQ(chosen(Collective::kAllReduce, few, 8), "oneshot");
  EXPECT_EQ(chosen(Collective::kAllReduce, few, 64 * kMiB), "twoshot");
  EXPECT_EQ(chosen(Collective::kBarrier, few, 0), "oneshot");
  const Shape many{.nranks = 64, .channels = 2};
  EXPECT_EQ(chosen(Collective::kAllReduce, many, 8), "doubling");
  EXPECT_EQ(chosen(Collective::kBroadcast, many, 8), "binomial");
  EXPECT_EQ(chosen(Collective::kBroadcast, many, 256 * kMiB), "tree");
  EXPECT_EQ(chosen(Collective::kBarrier, many, 0), "doubling");
}

TEST(Choice, FollowsTheLinks) {
  const Shape shape{.nranks = 48, .channels = 1};
  // Start-ups are slow and messages cheap: expect few start-ups.
  const LinkCosts slow_start = with_links({{.alpha_us = 100, .overhead_us = 0.01}});
  EXPECT_EQ(chosen(Collective::kAllGather, shape, 4096, slow_start), "direct");
  const LinkCosts slow_messages = with_links({{.alpha_us = 0.1, .overhead_us = 10}});
  EXPECT_EQ(chosen(Collective::kAllGather, shape, 4096, slow_messages), "circulant");
}

TEST(Choice, LeavesTheNetworkToLeadersWhereProcessorsAreScarce) {
  const Shape shape{.nranks = 4, .dims = {{2}, {2}}};
  LinkCosts links = with_links({{.alpha_us = 6, .overhead_us = 0.1},
                                {.alpha_us = 20, .overhead_us = 4, .beta_us_per_kib = 0.3}});
  links.ranks_per_core = 2;
  EXPECT_EQ(chosen(Collective::kAllReduce, shape, 8, links), "leaders");
  EXPECT_EQ(chosen(Collective::kBarrier, shape, 0, links), "leaders");
  EXPECT_NE(chosen(Collective::kAllReduce, shape, 64 << 20, links), "leaders");
  links.ranks_per_core = 1;
  EXPECT_NE(chosen(Collective::kBarrier, shape, 0, links), "leaders");
}

TEST(Choice, FollowsUnequalGroups) {
  const Shape shape{.nranks = 8, .channels = 2, .groups = {5, 3}};
  LinkCosts links = with_links({{.alpha_us = 0.5, .overhead_us = 0.1},
                                {.alpha_us = 20, .overhead_us = 4, .beta_us_per_kib = 0.3}});
  for (const auto collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather}) {
    EXPECT_EQ(chosen(collective, shape, 64 << 20, links), "hierarchical") << name_of(collective);
  }
  links.ranks_per_core = 2;
  EXPECT_EQ(chosen(Collective::kBarrier, shape, 0, links), "leaders");
}

TEST(Choice, NeverMissesASupportedShape) {
  for (int c = 0; c < kNumCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    const bool pair = collective == Collective::kSend || collective == Collective::kRecv;
    for (const int n : {1, 2, 3, 5, 64, 255, 256, 257, 1024, 5000}) {
      const auto name = chosen(collective, {.nranks = n, .root = n - 1}, 1 << 20);
      EXPECT_EQ(name == "none", pair && n != 2) << name_of(collective) << " of " << n;
    }
  }
}

TEST(Registry, FindsWhatItLists) {
  for (const Algorithm& algorithm : all_algorithms()) {
    EXPECT_EQ(find_algorithm(algorithm.collective, algorithm.name), &algorithm)
        << name_of(algorithm.collective) << ":" << algorithm.name << " is there twice";
  }
  EXPECT_EQ(find_algorithm(Collective::kAllReduce, "binomial"), nullptr);
  EXPECT_EQ(find_algorithm(Collective::kAllReduce, ""), nullptr);
}

} // namespace
} // namespace whorl
