// Tests of what crosses the boundaries of groups, and of predictions and bounds by level.
#include "algorithms/crossing.h"

#include "algorithms/cost_model.h"
#include "algorithms/least_time.h"
#include "support.h"

namespace whorl {
namespace {

using test::text;

double crossing_of(Collective collective, std::string_view name, const Shape& shape,
                   std::size_t level = 0) {
  return crossings(*find_algorithm(collective, name), shape).at(level);
}

TEST(Crossings, AreThoseThatAreKnown) {
  const Shape shape{.nranks = 8, .dims = {{4}, {2}}};
  struct Case {
    Collective collective;
    const char* name;
    double vectors;
  };
  for (const Case& one :
       {Case{Collective::kAllReduce, "ring", 2 * 7 / 8.0}, // by one rank
        Case{Collective::kAllReduce, "twoshot", 2 * 16 / 8.0},
        Case{Collective::kAllReduce, "oneshot", 16},
        Case{Collective::kAllReduce, "doubling", 4}, // the last of three rounds
        Case{Collective::kAllReduce, "hierarchical", 1}, Case{Collective::kAllReduce, "leaders", 1},
        Case{Collective::kAllGather, "hierarchical", 0.5},
        Case{Collective::kAllGather, "ring", 7 / 8.0}, Case{Collective::kBroadcast, "binomial", 1},
        Case{Collective::kBroadcast, "direct", 4}, Case{Collective::kBroadcast, "hierarchical", 1},
        Case{Collective::kAllToAll, "direct", 2}, Case{Collective::kGather, "direct", 0.5}}) {
    EXPECT_DOUBLE_EQ(crossing_of(one.collective, one.name, shape), one.vectors)
        << name_of(one.collective) << ":" << one.name;
  }
}

TEST(Crossings, KnowEveryLevel) {
  const Shape shape{.nranks = 16, .dims = {{2}, {4}, {2}}};
  EXPECT_DOUBLE_EQ(crossing_of(Collective::kAllReduce, "hierarchical", shape, 0), 1.5 + 0.25);
  EXPECT_DOUBLE_EQ(crossing_of(Collective::kAllReduce, "hierarchical", shape, 1), 1);
  EXPECT_DOUBLE_EQ(crossing_of(Collective::kAllReduce, "ring", shape, 1), 2 * 15 / 16.0);
}

TEST(Crossings, OfLargeGroupsAreEstimatedFromSomePlaces) {
  const Shape shape{.nranks = 128, .dims = {{64}, {2}}};
  EXPECT_DOUBLE_EQ(crossing_of(Collective::kAllGather, "direct", shape), 64 * 64 / 128.0);
  EXPECT_DOUBLE_EQ(crossing_of(Collective::kAllGather, "hierarchical", shape), 0.5);
}

TEST(Crossings, AreNotBelowTheLeast) {
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective == Collective::kBarrier) continue;
    for (Shape shape :
         {Shape{.nranks = 8, .dims = {{4}, {2}}}, Shape{.nranks = 6, .dims = {{2}, {3}}},
          Shape{.nranks = 8, .groups = {5, 3}}, Shape{.nranks = 9, .groups = {1, 5, 3}},
          Shape{.nranks = 32, .dims = {{8}, {4}}}}) {
      if (!algorithm.supports(shape)) continue;
      std::vector<int> sizes = shape.groups;
      for (int i = 0; shape.groups.empty() && i < shape.dims[1].size; ++i) {
        sizes.push_back(shape.dims[0].size);
      }
      EXPECT_GE(crossings(algorithm, shape)[0] + 1e-9, least_crossing(algorithm.collective, sizes))
          << text(algorithm, shape);
    }
  }
}

/// Returns costs of hosts that share a NIC, as of TCP over 10 Gbit/s.
LinkCosts hosts_with_nics() {
  LinkCosts costs;
  costs.levels[0] = {.link = {.alpha_us = 0.2, .send_us_per_kib = 0.03, .receive_us_per_kib = 0.03},
                     .boundary_us_per_kib = 0.82,
                     .scope = Scope::kHost};
  costs.levels[1] = {.link = {.alpha_us = 20,
                              .overhead_us = 4,
                              .beta_us_per_kib = 0.82,
                              .send_us_per_kib = 0,
                              .receive_us_per_kib = 0}};
  costs.count = 2;
  return costs;
}

TEST(Predictions, CountWhatAllRanksOfAHostSendTogether) {
  const Shape shape{.nranks = 8, .dims = {{4}, {2}}};
  LinkCosts costs = hosts_with_nics();
  costs.levels[1].link.alpha_us = costs.levels[1].link.overhead_us = 0;
  constexpr std::size_t kBytes = 64 << 20;
  const auto us = [&](const char* name) {
    return Predictor(*find_algorithm(Collective::kAllReduce, name), shape, costs)
        .predict(kBytes)
        .us;
  };
  const double nic_us = kBytes / 1024.0 * 0.82;
  EXPECT_NEAR(us("hierarchical") / nic_us, 1, 0.3);
  EXPECT_NEAR(us("ring") / nic_us, 1.75, 0.1);
  EXPECT_NEAR(us("twoshot") / nic_us, 4, 0.1);
}

TEST(Predictions, NameTheLevelOfTheTime) {
  const Shape shape{.nranks = 8, .dims = {{4}, {2}}};
  const Predictor predictor(*find_algorithm(Collective::kAllReduce, "hierarchical"), shape,
                            hosts_with_nics());
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{64} << 20}) {
    const Prediction found = predictor.predict(bytes);
    EXPECT_GT(found.level_us[1], 0.6 * found.us) << bytes;
    EXPECT_GT(found.level_us[0], 0) << bytes;
    EXPECT_LE(found.level_us[0] + found.level_us[1], found.us) << bytes;
  }
}

TEST(Predictions, OfTheLeastTimeAreBelowThoseOfAlgorithms) {
  LinkCosts near = hosts_with_nics();
  near.levels[0].boundary_us_per_kib = 0;
  for (const LinkCosts& costs : {LinkCosts(), hosts_with_nics(), near}) {
    for (const Algorithm& algorithm : all_algorithms()) {
      for (const Shape& shape :
           {Shape{.nranks = 8, .dims = {{4}, {2}}}, Shape{.nranks = 8, .groups = {5, 3}}}) {
        if (!algorithm.supports(shape)) continue;
        const Predictor predictor(algorithm, shape, costs);
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{4096}, std::size_t{64} << 20}) {
          const LeastTime least = least_time(algorithm.collective, shape, bytes, costs);
          EXPECT_LE(least.us, predictor.predict(bytes).us * 1.0001)
              << text(algorithm, shape) << " " << bytes << " " << least.limit;
          EXPECT_NE(least.limit, "");
        }
      }
    }
  }
}

TEST(LeastTime, SaysWhatLimits) {
  const Shape shape{.nranks = 8, .dims = {{4}, {2}}};
  const LinkCosts costs = hosts_with_nics();
  const auto limit = [&](std::size_t bytes) {
    return least_time(Collective::kAllReduce, shape, bytes, costs).limit;
  };
  EXPECT_EQ(limit(8), "a round on the network level");
  EXPECT_EQ(limit(64 << 20), "what crosses the boundary of each host");
  EXPECT_EQ(least_time(Collective::kAllReduce, {.nranks = 1}, 8, {}).us, 0);
}

} // namespace
} // namespace whorl
