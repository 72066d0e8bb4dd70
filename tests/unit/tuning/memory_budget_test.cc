// Tests of what is reduced, in which order, so that a communicator's memory fits into its budget.
#include "tuning/memory_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"

namespace whorl {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kPeers = 3, kFixed = 128;
/// Returns the memory of one channel's endpoints of a rank with three peers.
std::size_t endpoints(int slots, std::size_t slot_bytes) {
  return kPeers * (kFixed + static_cast<std::size_t>(slots) * slot_bytes);
}

const Shape kFour{.nranks = 4};
constexpr MemorySizes kWanted{.slots = 8, .slot_bytes = 65536, .channels = 5};

std::uint64_t fifos(const MemorySizes& sizes) {
  return sizes.channels * endpoints(static_cast<int>(sizes.slots), sizes.slot_bytes);
}

struct Sizes {
  std::uint32_t slots, slot_bytes, channels;
  bool operator==(const Sizes&) const = default;
  friend void PrintTo(const Sizes& sizes, std::ostream* out) {
    *out << sizes.channels << " channels of " << sizes.slots << " slots of " << sizes.slot_bytes;
  }
};
Sizes of(const MemorySizes& sizes) { return {sizes.slots, sizes.slot_bytes, sizes.channels}; }

TEST(MemoryBudget, WithoutOneNothingIsGivenUp) {
  const auto fitted = fit_budget(0, kWanted, kFour, 100, endpoints);
  ASSERT_TRUE(fitted.ok());
  EXPECT_EQ(of(*fitted), of(kWanted));
  EXPECT_EQ(fitted->workspace_bytes, UINT64_MAX);
}

TEST(MemoryBudget, WhatFitsToTheByteIsKeptAndTheRestIsWorkspace) {
  constexpr std::size_t kScratch = 4;
  const std::uint64_t exact = fifos(kWanted) + kScratch * kWanted.slot_bytes;
  for (const std::uint64_t spare : {0U, 1U, 4095U}) {
    const auto fitted = fit_budget(exact + spare, kWanted, kFour, kScratch, endpoints);
    ASSERT_TRUE(fitted.ok());
    EXPECT_EQ(of(*fitted), of(kWanted));
    EXPECT_EQ(fitted->workspace_bytes, kScratch * kWanted.slot_bytes + spare);
  }
  const auto smaller = fit_budget(exact - 1, kWanted, kFour, kScratch, endpoints);
  ASSERT_TRUE(smaller.ok());
  EXPECT_EQ(smaller->channels, kWanted.channels - 1);
}

/// Returns all sizes that shrinking goes through, largest first.
std::vector<Sizes> all_sizes(const MemorySizes& wanted, const Shape& shape) {
  std::vector<Sizes> all;
  MemorySizes sizes = wanted;
  for (;;) {
    all.push_back(of(sizes));
    const MemorySizes next = shrink_towards(fifos(sizes) - 1, wanted, shape, endpoints);
    if (of(next) == of(sizes)) return all;
    sizes = next;
  }
}

TEST(MemoryBudget, GivesUpChannelsThenSizeThenNumberThenSizeOfSlots) {
  EXPECT_EQ(all_sizes(kWanted, kFour), (std::vector<Sizes>{{8, 65536, 5},
                                                           {8, 65536, 4},
                                                           {8, 65536, 3},
                                                           {8, 32768, 3},
                                                           {8, 16384, 3},
                                                           {8, 8192, 3},
                                                           {7, 8192, 3},
                                                           {6, 8192, 3},
                                                           {5, 8192, 3},
                                                           {4, 8192, 3},
                                                           {3, 8192, 3},
                                                           {2, 8192, 3},
                                                           {2, 4096, 3},
                                                           {2, 2048, 3},
                                                           {2, 1024, 3}}));
}

TEST(MemoryBudget, KeepsTheChannelsOfARing) {
  const Shape shape{.nranks = 4, .channels = 3};
  EXPECT_EQ(all_sizes(kWanted, shape).back(), (Sizes{2, 1024, 4}));
}

TEST(MemoryBudget, KeepsSlotsMultiplesOf64) {
  const MemorySizes odd{.slots = 2, .slot_bytes = 64 * 333, .channels = 3};
  for (const Sizes& sizes : all_sizes(odd, kFour)) EXPECT_EQ(sizes.slot_bytes % 64, 0U);
}

TEST(MemoryBudget, KeepsRoomForAnElementOfEveryRank) {
  const Shape thousand{.nranks = 1000};
  EXPECT_EQ(all_sizes(kWanted, thousand).back(), (Sizes{2, 8000, 3}));
}

TEST(MemoryBudget, NeverEnlargesWhatWasWanted) {
  const MemorySizes small{.slots = 2, .slot_bytes = 256, .channels = 2};
  EXPECT_EQ(all_sizes(small, kFour), (std::vector<Sizes>{{2, 256, 2}}));
}

TEST(MemoryBudget, WhatIsGivenFitsTheBudgetWithTheScratch) {
  const std::size_t scratch = scratch_slots(kFour);
  for (std::uint64_t budget = 1 << 15; budget < std::uint64_t{1} << 24U; budget += budget / 7) {
    const auto fitted = fit_budget(budget, kWanted, kFour, scratch, endpoints);
    ASSERT_TRUE(fitted.ok()) << fitted.status().message();
    EXPECT_EQ(fifos(*fitted) + fitted->workspace_bytes, budget);
    EXPECT_GE(fitted->workspace_bytes, scratch * fitted->slot_bytes);
  }
}

TEST(MemoryBudget, ATooSmallOneIsRefusedWithTheSmallestThatWouldDo) {
  constexpr std::size_t kScratch = 4;
  const std::uint64_t least = 3 * endpoints(2, 1024) + kScratch * 1024;
  const auto refused = fit_budget(least - 1, kWanted, kFour, kScratch, endpoints);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kInvalidUsage);
  EXPECT_THAT(refused.status().message(),
              HasSubstr("a memory budget of " + std::to_string(least - 1) +
                        " bytes is too small "
                        "for 4 ranks: with 3 channels of 2 slots of 1024 bytes, the smallest, a "
                        "rank needs " +
                        std::to_string(least) +
                        " bytes. Raise "
                        "WHORL_MEMORY_BUDGET or config.memoryBudget to at least that"));
  const auto fitted = fit_budget(least, kWanted, kFour, kScratch, endpoints);
  ASSERT_TRUE(fitted.ok());
  EXPECT_EQ(of(*fitted), (Sizes{2, 1024, 3}));
  EXPECT_EQ(fitted->workspace_bytes, kScratch * 1024);
}

TEST(MemoryBudget, ShrinkingStopsAtTheSmallestSizes) {
  const MemorySizes least = shrink_towards(1, kWanted, kFour, endpoints);
  EXPECT_EQ(of(least), (Sizes{2, 1024, 3}));
  EXPECT_EQ(least.workspace_bytes, UINT64_MAX);
}

TEST(ScratchSlots, AreEnoughForEveryScheduleOfEveryAlgorithm) {
  for (const int nranks : {1, 2, 3, 8, 13}) {
    const Shape shape{.nranks = nranks};
    const std::size_t slots = scratch_slots(shape);
    std::size_t most = 0;
    for (const Algorithm& algorithm : all_algorithms()) {
      if (!algorithm.supports(shape)) continue;
      for (const Schedule& schedule : build_all(algorithm, shape)) {
        // Chunks travel `message_chunks` at a time, in one slot.
        const std::size_t in_slot = std::max<std::size_t>(1, schedule.message_chunks);
        EXPECT_LE(schedule.scratch.size(), slots * in_slot)
            << algorithm.name << " of " << name_of(algorithm.collective) << ", " << nranks
            << " ranks";
        most = std::max(most, (schedule.scratch.size() + in_slot - 1) / in_slot);
      }
    }
    EXPECT_EQ(slots, most) << nranks << " ranks";
  }
}

} // namespace
} // namespace whorl
