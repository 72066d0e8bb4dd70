// Proofs for groups of unequal sizes, and counts of what crosses their boundaries.
#include <algorithm>
#include <numeric>
#include <random>

#include "algorithms/groups.h"
#include "support.h"

namespace whorl {
namespace {

using Sizes = std::vector<int>;

std::vector<Algorithm> grouping_algorithms() {
  std::vector<Algorithm> found;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (test::needs_dims(algorithm)) found.push_back(algorithm);
  }
  return found;
}

const std::vector<Sizes> kFew{{2, 1},    {1, 2},    {5, 3},       {3, 5},    {1, 4},
                              {2, 2, 1}, {1, 1, 2}, {7, 1},       {1, 1, 5}, {4, 6},
                              {3, 2, 4}, {1, 8, 1}, {2, 3, 1, 2}, {6, 3}};
const std::vector<Sizes> kMany{{8, 7, 6, 5},
                               {16, 15},
                               {9, 3, 9, 9},
                               {1, 2, 3, 4, 5, 6},
                               {20, 1, 2},
                               {17, 18},
                               {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2},
                               {8, 8, 8, 8, 8, 8, 8, 7},
                               {31, 33},
                               {40, 24}};

Shape shape_of(const Sizes& sizes, int channels = 1, int root = 0) {
  return {.nranks = std::accumulate(sizes.begin(), sizes.end(), 0),
          .root = root,
          .channels = channels,
          .groups = sizes};
}

class Uneven : public ::testing::TestWithParam<Algorithm> {
 protected:
  /// Verifies groups of these sizes for roots `step` apart.
  void verify_sizes(const Sizes& sizes, int channels, int step, bool all_forms) {
    Shape shape = shape_of(sizes, channels);
    ASSERT_TRUE(GetParam().supports(shape)) << test::text(GetParam(), shape);
    for (; shape.root < shape.nranks; shape.root += step) {
      ASSERT_TRUE(test::verifies(GetParam(), shape, all_forms));
      if (!has_root(GetParam().collective)) return;
    }
  }
};
class UnevenFull : public Uneven {};

TEST_P(Uneven, Verifies) {
  for (const Sizes& sizes : kFew) {
    for (const int channels : {1, 2}) verify_sizes(sizes, channels, 1, true);
  }
  for (const Sizes& sizes : kMany) {
    if (shape_of(sizes).nranks <= test::kFewRanks) verify_sizes(sizes, 1, 11, false);
  }
}
TEST_P(UnevenFull, Verifies) {
  for (const Sizes& sizes : kMany) {
    for (const int channels : {1, 3}) verify_sizes(sizes, channels, 1, channels == 1);
  }
  for (int first = 1; first <= 9; ++first) {
    for (int second = 1; second <= 9; ++second) {
      for (int third = 0; third <= 9; ++third) {
        Sizes sizes{first, second};
        if (third > 0) sizes.push_back(third);
        if (Groups::exist(shape_of(sizes))) verify_sizes(sizes, 1, 3, false);
      }
    }
  }
}

TEST_P(Uneven, VerifiesInAnyOrder) {
  std::mt19937 random(20240607); // the seed
  for (const Sizes& sizes : kFew) {
    Shape shape = shape_of(sizes, 2);
    shape.root = has_root(GetParam().collective) ? shape.nranks / 2 : 0;
    shape.order.resize(static_cast<std::size_t>(shape.nranks));
    std::iota(shape.order.begin(), shape.order.end(), 0);
    std::shuffle(shape.order.begin(), shape.order.end(), random);
    ASSERT_TRUE(test::verifies(GetParam(), shape));
  }
}

TEST_P(Uneven, NeedsNoMoreSlotsForManyWindows) {
  for (const Sizes& sizes : kFew) {
    for (const bool in_place : {false, true}) {
      const Shape shape = shape_of(sizes, 2);
      const auto report = verify(build_all(GetParam(), shape), {GetParam().collective, 0, in_place},
                                 {.slots = kMinSlots, .windows = 9, .published = in_place});
      ASSERT_TRUE(report.ok()) << test::text(GetParam(), shape) << report.status().message();
    }
  }
}

TEST_P(Uneven, NeedsGroupsThatFit) {
  const auto supported = [](const Shape& shape) { return GetParam().supports(shape); };
  for (const Sizes& sizes : {Sizes{6}, Sizes{3, 2}, Sizes{4, 3}, Sizes{7, -1}, Sizes{6, 0},
                             Sizes{1, 1, 1, 1, 1, 1}, Sizes{2000000000, 2000000000, 6}}) {
    EXPECT_FALSE(supported({.nranks = 6, .groups = sizes})) << sizes.front();
  }
  EXPECT_TRUE(supported({.nranks = 6, .groups = {4, 2}}));
  EXPECT_FALSE(supported(shape_of({300, 2}))) << "more partners than a lane can name";
  EXPECT_FALSE(supported(shape_of({100000, 70000})));
}

TEST_P(Uneven, StaysSmall) {
  for (const Sizes& sizes : kMany) {
    for (const Schedule& schedule : build_all(GetParam(), shape_of(sizes, 2))) {
      ASSERT_LE(test::load_of(schedule).max_steps, 300) << sizes.front();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Uneven, ::testing::ValuesIn(grouping_algorithms()), name_of_test);
INSTANTIATE_TEST_SUITE_P(All, UnevenFull, ::testing::ValuesIn(grouping_algorithms()), name_of_test);

/// Chunks that cross the boundary of a group in each direction.
struct Crossing {
  int out = 0, in = 0;
};

std::vector<Crossing> crossings(const std::vector<Schedule>& schedules, const Groups& groups) {
  std::vector<Crossing> crossings(static_cast<std::size_t>(groups.count()));
  for (const Schedule& schedule : schedules) {
    const auto from = static_cast<std::size_t>(groups.of(schedule.rank));
    for (const Lane& lane : schedule.lanes) {
      for (const Step& step : lane.steps) {
        for (int i = 0; i < step.fan_out(); ++i) {
          const auto peer = lane.peers[static_cast<std::size_t>(step.tx + i)];
          const auto to = static_cast<std::size_t>(groups.of(static_cast<int>(peer)));
          if (from == to) continue;
          crossings[from].out += step.count * step.repeat;
          crossings[to].in += step.count * step.repeat;
        }
      }
    }
  }
  return crossings;
}

TEST(UnevenTraffic, IsTheLeastBetweenGroups) {
  for (const Sizes& sizes : kFew) {
    const Shape shape = shape_of(sizes, 2);
    const Groups groups(shape);
    const int n = shape.nranks, m = groups.count();
    for (const auto collective :
         {Collective::kReduceScatter, Collective::kAllGather, Collective::kAllReduce}) {
      const std::vector<Schedule> schedules =
          build_all(*find_algorithm(collective, "hierarchical"), shape);
      const auto crossed = crossings(schedules, groups);
      const int block = std::max(schedules[0].input_chunks, schedules[0].output_chunks) / n;
      for (int group = 0; group < m; ++group) {
        // The group's partial sums of all other blocks leave it once. Its own blocks come in once
        // from each other group. An all-gather is the reverse.
        const int others = (n - groups.size(group)) * block;
        const int own = (m - 1) * groups.size(group) * block;
        const bool both = collective == Collective::kAllReduce;
        const bool gathers = collective == Collective::kAllGather;
        const Crossing& here = crossed[static_cast<std::size_t>(group)];
        EXPECT_EQ(here.out, both ? others + own : (gathers ? own : others));
        EXPECT_EQ(here.in, both ? others + own : (gathers ? others : own));
      }
    }
  }
}

TEST_P(Uneven, CostsKnowWhatStaysInGroups) {
  for (const Sizes& sizes : kFew) {
    const Shape shape = shape_of(sizes, 2);
    const Groups groups(shape);
    double chunks = 1, moved = 0, messages = 0; // of the busiest rank
    for (const Schedule& schedule : build_all(GetParam(), shape)) {
      int sent = 0, received = 0, sends = 0, receives = 0;
      for (const Lane& lane : schedule.lanes) {
        const auto near = [&](int first, int fan) {
          int count = 0;
          for (int i = 0; i < fan; ++i) {
            const auto peer = static_cast<int>(lane.peers[static_cast<std::size_t>(first + i)]);
            count += groups.of(peer) == groups.of(schedule.rank) ? 1 : 0;
          }
          return count;
        };
        for (const Step& step : lane.steps) {
          const int to = near(step.tx, step.fan_out()), from = near(step.rx, step.fan_in());
          sent += to * step.count * step.repeat;
          received += from * step.count * step.repeat;
          sends += to * step.repeat;
          receives += from * step.repeat;
        }
      }
      chunks =
          std::max<double>({chunks, 1.0 * schedule.input_chunks, 1.0 * schedule.output_chunks});
      moved = std::max({moved, 1.0 * sent, 1.0 * received});
      messages = std::max({messages, 1.0 * sends, 1.0 * receives});
    }
    const Cost cost = GetParam().cost(shape);
    const std::string what = test::text(GetParam(), shape);
    EXPECT_NEAR(cost.inner[0].volume * chunks, moved, 1e-6) << what;
    EXPECT_GE(cost.inner[0].messages, messages) << what;
    EXPECT_LE(cost.inner[0].messages, 2 * messages) << what;
    EXPECT_LE(cost.inner[0].rounds, cost.rounds) << what;
  }
}

TEST(UnevenTraffic, OfRootsAndLeadersIsTheVector) {
  const Shape shape = shape_of({5, 3, 1}, 1, 6);
  const Groups groups(shape);
  struct Expected {
    Collective collective;
    const char* name;
    int into_root, into_others; // vectors
  };
  for (const Expected& expected :
       {Expected{Collective::kBroadcast, "hierarchical", 0, 1},
        Expected{Collective::kReduce, "hierarchical", 2, 0},
        // Doubling of three leaders: the first one is folded into the second.
        Expected{Collective::kAllReduce, "leaders", 2, 1}}) {
    const auto crossed =
        crossings(build_all(*find_algorithm(expected.collective, expected.name), shape), groups);
    EXPECT_EQ(crossed[1].in, expected.into_root) << expected.name;
    EXPECT_EQ(crossed[0].in, expected.into_others) << expected.name;
    EXPECT_EQ(crossed[2].in, expected.into_others) << expected.name;
  }
}

TEST(UnevenTraffic, IsSharedByTheMembers) {
  const Shape shape = shape_of({5, 3});
  const Groups groups(shape);
  for (const Schedule& schedule :
       build_all(*find_algorithm(Collective::kReduceScatter, "hierarchical"), shape)) {
    EXPECT_EQ(test::load_of(schedule).sent_chunks, 7 * schedule.chunks_per_block);
  }
}

} // namespace
} // namespace whorl
