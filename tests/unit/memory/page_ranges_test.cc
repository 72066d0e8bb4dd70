#include "memory/page_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

namespace whorl {
namespace {

TEST(FreeRanges, TakesTheFirstFitAndJoinsNeighbours) {
  FreeRanges ranges(100);
  EXPECT_EQ(ranges.take(40), 0U);
  EXPECT_EQ(ranges.take(40), 40U);
  EXPECT_EQ(ranges.take(40), std::nullopt);
  EXPECT_EQ(ranges.take(20), 80U);
  EXPECT_EQ(ranges.fragments(), 0U);
  ranges.give(0, 40);
  ranges.give(80, 20);
  EXPECT_EQ(ranges.fragments(), 2U);
  ranges.give(40, 40); // joins both sides
  EXPECT_EQ(ranges.fragments(), 1U);
  EXPECT_EQ(ranges.take(100), 0U);
}

TEST(FreeRanges, LoseNothingInARandomWalk) {
  std::mt19937 random(7);
  FreeRanges ranges(1000);
  std::vector<std::pair<std::size_t, std::size_t>> taken;
  std::size_t bytes = 0;
  for (int i = 0; i < 5000; ++i) {
    if (random() % 2 == 0) {
      const std::size_t size = 1 + random() % 50;
      if (const auto offset = ranges.take(size)) {
        for (const auto& [other, length] : taken) {
          ASSERT_TRUE(*offset + size <= other || other + length <= *offset) << "overlap";
        }
        taken.emplace_back(*offset, size);
        bytes += size;
      }
    } else if (!taken.empty()) {
      std::swap(taken[random() % taken.size()], taken.back());
      ranges.give(taken.back().first, taken.back().second);
      bytes -= taken.back().second;
      taken.pop_back();
    }
    ASSERT_EQ(ranges.free_bytes() + bytes, 1000U);
  }
  for (const auto& [offset, size] : taken) ranges.give(offset, size);
  EXPECT_EQ(ranges.fragments(), 1U);
}

TEST(AddressIndex, FindsRangesAndNothingBetween) {
  AddressIndex index;
  std::uint64_t offset = 0;
  EXPECT_FALSE(index.find(100, 1, &offset));
  index.insert(2000, 100, 7000);
  index.insert(1000, 100, 5000);
  index.insert(3000, 100, 9000);
  EXPECT_TRUE(index.find(1000, 100, &offset));
  EXPECT_EQ(offset, 5000U);
  EXPECT_TRUE(index.find(2050, 50, &offset));
  EXPECT_EQ(offset, 7050U);
  EXPECT_FALSE(index.find(2050, 51, &offset));
  EXPECT_FALSE(index.find(999, 2, &offset));
  EXPECT_FALSE(index.find(1500, 1, &offset));
  EXPECT_FALSE(index.find(2000, SIZE_MAX, &offset));
  index.erase(2000);
  EXPECT_FALSE(index.find(2050, 1, &offset));
  EXPECT_TRUE(index.find(3099, 1, &offset));
  EXPECT_EQ(offset, 9099U);
}

TEST(AddressIndex, IsReadWhileItChanges) {
  AddressIndex index;
  index.insert(1'000'000, 100, 42);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread reader([&] {
    std::uint64_t offset = 0;
    while (!stop.load(std::memory_order_relaxed)) {
      if (index.find(1'000'010, 10, &offset) && offset != 52) ++wrong;
      if (index.find(500, 10, &offset) && offset != 1500) ++wrong;
    }
  });
  for (int i = 0; i < 20'000; ++i) {
    index.insert(500, 10, 1500);
    index.erase(500);
  }
  stop = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
}

TEST(KeptRanges, GivesTheLastOneOfASize) {
  KeptRanges kept(10);
  EXPECT_EQ(kept.take(1), std::nullopt);
  kept.give(100, 2);
  kept.give(200, 2);
  kept.give(300, 3);
  EXPECT_EQ(kept.bytes(), 7U);
  EXPECT_EQ(kept.take(1), std::nullopt);
  EXPECT_EQ(kept.take(2), 200U);
  EXPECT_EQ(kept.take(2), 100U);
  EXPECT_EQ(kept.take(2), std::nullopt);
  kept.give(100, 2);
  EXPECT_EQ(kept.take_all().size(), 2U);
  EXPECT_EQ(kept.bytes(), 0U);
  EXPECT_EQ(kept.take(3), std::nullopt);
}

} // namespace
} // namespace whorl
