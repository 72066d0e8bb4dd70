// Tests of the memory for slots of transports between hosts.
#include "transports/control/slot_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace whorl {
namespace {

TEST(SlotMemory, IsZeroAndCountedOnceUsed) {
  constexpr std::size_t kBytes = 1 << 20;
  auto memory = SlotMemory::map(kBytes, SlotMemory::Backing::kOnUse, "a test");
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  EXPECT_EQ(memory->bytes(), kBytes);
  EXPECT_TRUE(std::all_of(memory->data(), memory->data() + kBytes,
                          [](std::byte byte) { return byte == std::byte{0}; }));
  std::fill(memory->data(), memory->data() + kBytes, std::byte{1});
  EXPECT_EQ(memory->resident(), kBytes);
  const SlotMemory moved = *std::move(memory);
  EXPECT_EQ(moved.data()[kBytes - 1], std::byte{1});
}

TEST(SlotMemory, OfNoSlotsIsAPage) {
  const auto memory = SlotMemory::map(0, SlotMemory::Backing::kWhole, "a test");
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  EXPECT_EQ(memory->bytes(), 4096);
  EXPECT_FALSE(SlotMemory());
  EXPECT_EQ(SlotMemory().resident(), 0);
}

TEST(SlotMemory, TooMuchIsAnErrorThatNamesTheOwner) {
  for (const auto backing : {SlotMemory::Backing::kOnUse, SlotMemory::Backing::kWhole}) {
    const auto refused = SlotMemory::map(SIZE_MAX / 4, backing, "7 TCP connections");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().message().find("no memory for the slots of 7 TCP connections ("), 0U)
        << refused.status().message();
  }
}

} // namespace
} // namespace whorl
