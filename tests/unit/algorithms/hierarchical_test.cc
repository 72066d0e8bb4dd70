#include <climits>

#include "support.h"

namespace whorl {
namespace {

using Dims = std::vector<Dimension>;

constexpr std::array kCollectives{Collective::kAllReduce, Collective::kReduceScatter,
                                  Collective::kAllGather, Collective::kBroadcast,
                                  Collective::kReduce};

std::vector<Dims> all_dims() {
  return {
      {{2}, {2}},
      {{4}, {2}},
      {{2}, {1}, {2}},
      {{2}, {3}, {2}},
      {{3}, {5}},
      {{8}, {8}},
      {{2}, {20}},
      {{20}, {2}},
      {{2}, {2}, {2}, {2}, {2}, {2}},
      {{4, "ring"}, {3, "ring"}},
      {{3, "ring"}, {4, "direct"}},
      {{4, "twoshot"}, {4, "doubling"}},
      {{4, "twoshot"}, {5, "doubling"}},
      {{4, "direct"}, {4, "oneshot"}},
      {{4, "halving_doubling"}, {8, "halving_doubling"}},
      {{8, "halving_doubling"}, {3, "ring"}, {2, "circulant"}},
      {{6, "circulant"}, {5, "circulant"}},
      {{7, "circulant"}, {3, "tree"}},
      {{4, "doubling"}, {2, "ring"}, {3, "halving_doubling"}},
      {{5, "tree"}, {4, "ring"}},
      {{5, "tree"}, {4, "binomial"}, {2, "direct"}},
      {{8, "ring"}, {8, "ring"}},
      {{4, "circulant"}, {16, "tree"}},
  };
}

int ranks_of(const Dims& dims) {
  int ranks = 1;
  for (const Dimension& dimension : dims) ranks *= dimension.size;
  return ranks;
}

class Hierarchical : public ::testing::TestWithParam<Collective> {
 protected:
  const Algorithm& algorithm() const { return *find_algorithm(GetParam(), "hierarchical"); }

  /// Verifies all_dims() of `least` to `most` ranks. Returns the number of supported shapes.
  int verify_dims(int least, int most) const;
};
class HierarchicalFull : public Hierarchical {};

int Hierarchical::verify_dims(int least, int most) const {
  int supported = 0;
  for (const Dims& dims : all_dims()) {
    const int n = ranks_of(dims);
    if (n < least || n > most) continue;
    for (int channels = 1; channels <= 3; ++channels) {
      for (int root = 0; root<n; root += n> 16 ? 7 : 1) {
        const Shape shape{.nranks = n, .root = root, .channels = channels, .dims = dims};
        if (!algorithm().supports(shape)) continue;
        ++supported;
        EXPECT_TRUE(test::verifies(algorithm(), shape));
        for (const Schedule& schedule : build_all(algorithm(), shape)) {
          EXPECT_LE(test::load_of(schedule).max_steps, 256) << test::text(algorithm(), shape);
        }
        if (HasFailure()) return supported;
        if (!has_root(GetParam())) break;
      }
    }
  }
  return supported;
}

TEST_P(Hierarchical, VerifiesWithMixedLevels) { EXPECT_GE(verify_dims(0, test::kFewRanks), 30); }
TEST_P(HierarchicalFull, VerifiesWithMixedLevels) {
  EXPECT_GE(verify_dims(test::kFewRanks + 1, INT_MAX), 10);
}

TEST_P(Hierarchical, NeedsTwoLevelsThatFit) {
  for (const Dims& dims :
       {Dims{}, Dims{{6}}, Dims{{6}, {1}}, Dims{{2}, {2}}, Dims{{2}, {4}}, Dims{{-2}, {-3}},
        Dims{{0}, {6}}, Dims{{2, "hierarchical"}, {3}}, Dims{{2, "no such algorithm"}, {3}},
        Dims{{1000000}, {1000000}, {1000000}, {1000000}}}) {
    const Shape shape{.nranks = 6, .dims = dims};
    EXPECT_FALSE(algorithm().supports(shape)) << test::text(algorithm(), shape);
  }
  EXPECT_TRUE(algorithm().supports({.nranks = 6, .dims = {{2}, {3}}}));
}

std::string name_of_test(const ::testing::TestParamInfo<Collective>& info) {
  return std::string(name_of(info.param));
}
INSTANTIATE_TEST_SUITE_P(All, Hierarchical, ::testing::ValuesIn(kCollectives), name_of_test);
INSTANTIATE_TEST_SUITE_P(All, HierarchicalFull, ::testing::ValuesIn(kCollectives), name_of_test);

/// Returns the chunks that `rank` sends to other groups of `group` ranks, as a share of its
/// vector's chunks.
double sent_outside(const Schedule& schedule, int group, int vector_chunks) {
  int chunks = 0;
  for (const Lane& lane : schedule.lanes) {
    for (const Step& step : lane.steps) {
      for (int i = 0; i < step.fan_out(); ++i) {
        const auto peer = static_cast<int>(lane.peers[static_cast<std::size_t>(step.tx + i)]);
        if (peer / group != schedule.rank / group) chunks += step.count * step.repeat;
      }
    }
  }
  return static_cast<double>(chunks) / vector_chunks;
}

TEST(HierarchicalTraffic, LittleLeavesTheGroup) {
  const int group = 8, groups = 4;
  const Shape shape{.nranks = group * groups, .channels = 2, .dims = {{group}, {groups}}};
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather}) {
    const Algorithm& algorithm = *find_algorithm(collective, "hierarchical");
    const double halves = collective == Collective::kAllReduce ? 2 : 1;
    for (const Schedule& schedule : build_all(algorithm, shape)) {
      const int chunks = std::max(schedule.input_chunks, schedule.output_chunks);
      EXPECT_DOUBLE_EQ(sent_outside(schedule, group, chunks),
                       halves * (groups - 1) / groups / group)
          << test::text(algorithm, shape);
    }
  }
}

class Leaders : public ::testing::TestWithParam<Collective> {
 protected:
  const Algorithm& algorithm() const { return *find_algorithm(GetParam(), "leaders"); }
};

TEST_P(Leaders, Verify) {
  for (int size = 2; size <= 9; ++size) {
    for (int groups = 2; groups <= 9; ++groups) {
      for (int channels = 1; channels <= 2; ++channels) {
        const Shape shape{
            .nranks = size * groups, .channels = channels, .dims = {{size}, {groups}}};
        ASSERT_TRUE(algorithm().supports(shape));
        ASSERT_TRUE(test::verifies(algorithm(), shape));
      }
    }
  }
  const Shape levels{.nranks = 24, .dims = {{4}, {3}, {2}}};
  ASSERT_TRUE(test::verifies(algorithm(), levels));
}

TEST_P(Leaders, NeedGroups) {
  for (const Dims& dims :
       {Dims{}, Dims{{6}}, Dims{{6}, {1}}, Dims{{1}, {6}}, Dims{{-2}, {-3}}, Dims{{4}, {2}}}) {
    const Shape shape{.nranks = 6, .dims = dims};
    EXPECT_FALSE(algorithm().supports(shape)) << test::text(algorithm(), shape);
  }
}

TEST_P(Leaders, AloneTalkToOtherGroups) {
  const int size = 4;
  const Shape shape{.nranks = 4 * size, .channels = 2, .dims = {{size}, {4}}};
  for (const Schedule& schedule : build_all(algorithm(), shape)) {
    const bool leads = schedule.rank % size == 0;
    EXPECT_EQ(sent_outside(schedule, size, 1) > 0, leads) << schedule.rank;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Leaders,
                         ::testing::Values(Collective::kAllReduce, Collective::kBarrier),
                         name_of_test);

} // namespace
} // namespace whorl
