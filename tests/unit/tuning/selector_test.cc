// Tests of each collective's algorithm, and of collectives without one.
#include "tuning/selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace whorl {
namespace {

using ::testing::HasSubstr;

TEST(Selector, HasAnAlgorithmForEveryCollectiveOfAThousandRanks) {
  for (const int nranks : {1, 2, 256, 257, 300, 1024, 5000}) {
    const auto selector = Selector::make({.nranks = nranks}, {}, "");
    ASSERT_TRUE(selector.ok()) << selector.status().message();
    EXPECT_TRUE(selector->valid());
    for (int c = 0; c < kNumCollectives; ++c) {
      const auto collective = static_cast<Collective>(c);
      EXPECT_TRUE(selector->check(collective, nranks).ok()) << name_of(collective);
      EXPECT_EQ(selector->pick(collective, 8).collective, collective);
    }
  }
}

TEST(Selector, ACollectiveWithoutAlgorithmDoesNotStopTheOthers) {
  const int nranks = 70'000; // blocks of so many ranks cannot be numbered
  const auto selector = Selector::make({.nranks = nranks}, {}, "");
  ASSERT_TRUE(selector.ok()) << selector.status().message();
  EXPECT_TRUE(selector->valid());
  EXPECT_TRUE(selector->check(Collective::kBarrier, nranks).ok());
  EXPECT_TRUE(selector->check(Collective::kSend, nranks).ok());
  const Status none = selector->check(Collective::kAllToAll, nranks);
  EXPECT_EQ(none.code(), Code::kInvalidUsage);
  EXPECT_THAT(none.message(), HasSubstr("none of the algorithms of alltoall (direct, bruck, "
                                        "pairwise) supports 70000 ranks"));
}

} // namespace
} // namespace whorl
