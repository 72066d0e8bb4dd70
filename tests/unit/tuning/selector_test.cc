// Tests of each collective's algorithm, and of collectives without one.
#include "tuning/selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

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

TEST(Selector, BlocksOfDifferentSizesNeedAnAlgorithmOfTheirOwn) {
  for (const Collective collective : {Collective::kAllGather, Collective::kReduceScatter}) {
    const auto few = uneven_algorithm(collective, {.nranks = 3, .channels = 16});
    ASSERT_TRUE(few.ok()) << few.status().message();
    EXPECT_EQ((*few)->collective, collective);
    EXPECT_TRUE(uneven_algorithm(collective, {.nranks = 4096}).ok());
    const Status none = uneven_algorithm(collective, {.nranks = 4096, .channels = 16}).status();
    EXPECT_EQ(none.code(), Code::kInvalidUsage);
    EXPECT_THAT(none.message(), HasSubstr("supports 4096 ranks with 16 channels and blocks"));
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

TEST(Selector, AnAlgorithmThatDoesNotSupportTheRanksIsRefusedWithThoseThatDo) {
  const auto refusal = [](const Shape& shape, const char* overrides) {
    return Selector::make(shape, {}, overrides).status().message();
  };
  EXPECT_EQ(refusal({.nranks = 3}, "allgather:doubling"),
            "WHORL_ALGO: doubling of allgather does not support 3 ranks with 1 channel; leave it "
            "out, or choose one of direct, circulant, ring");
  const std::string remedy =
      "; leave it out, give WHORL_DIMS two or more sizes above 1 without algorithms, or choose one "
      "of oneshot, doubling";
  EXPECT_EQ(
      refusal({.nranks = 4}, "barrier:leaders"),
      "WHORL_ALGO: leaders of barrier does not support 4 ranks in the dimensions \"4\"" + remedy);
  EXPECT_EQ(refusal({.nranks = 4, .groups = {4}}, "barrier:leaders"),
            "WHORL_ALGO: leaders of barrier does not support 4 ranks in groups of 4" + remedy);
  EXPECT_THAT(refusal({.nranks = 4, .dims = {{2, "bruck"}, {2, {}}}}, "allreduce:hierarchical"),
              HasSubstr("does not support 4 ranks in the dimensions \"2:bruck,2\"; leave it out"));
  EXPECT_TRUE(
      Selector::make({.nranks = 4, .dims = {{2, {}}, {2, {}}}}, {}, "allreduce:leaders").ok());
}

TEST(Selector, ATableOfAnotherRankIsChecked) {
  const auto good = Selector::make({.nranks = 4}, {}, "");
  ASSERT_TRUE(good.ok());
  ASSERT_TRUE(good->valid());
  std::array<std::uint8_t, sizeof(Selector)> bytes{};
  const auto valid_with = [&](std::size_t at, std::uint8_t value) {
    std::memcpy(bytes.data(), &*good, bytes.size());
    bytes[at] = value;
    Selector changed = *good;
    std::memcpy(&changed, bytes.data(), bytes.size());
    return changed.valid();
  };
  for (const std::size_t collective : {0U, 1U}) {
    for (const std::size_t size_class : {std::size_t{0}, std::size_t{5}, Selector::kClasses - 1}) {
      const std::size_t at = collective * Selector::kClasses + size_class;
      EXPECT_FALSE(valid_with(at, 255)) << "no algorithm at one size alone";
      EXPECT_FALSE(valid_with(at, 254)) << "beyond all algorithms";
    }
  }
  std::memcpy(bytes.data(), &*good, bytes.size());
  std::fill_n(bytes.begin(), Selector::kClasses, std::uint8_t{255});
  Selector without = *good;
  std::memcpy(&without, bytes.data(), bytes.size());
  EXPECT_TRUE(without.valid()) << "a collective without algorithm";
  EXPECT_FALSE(without.has(static_cast<Collective>(0)));

  const std::uint8_t first = reinterpret_cast<const std::uint8_t*>(&*good)[0];
  EXPECT_FALSE(valid_with(Selector::kClasses, first)) << "an algorithm of another collective";
}

} // namespace
} // namespace whorl
