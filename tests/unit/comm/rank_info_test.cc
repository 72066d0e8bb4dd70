// What ranks ask for in their cards and what comes of it.
#include "comm/rank_info.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "comm/decisions.h"

namespace whorl {
namespace {

/// What one rank asks for.
struct Wish {
  std::uint32_t slots = 0, slot_bytes = 0;
};

std::vector<RankCard> cards_of(const std::vector<Wish>& wishes) {
  std::vector<RankCard> cards(wishes.size());
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    cards[rank].rank = static_cast<std::uint32_t>(rank);
    cards[rank].version = kWireVersion;
    cards[rank].slots = wishes[rank].slots;
    cards[rank].slot_bytes = wishes[rank].slot_bytes;
    cards[rank].channels = 3;
  }
  return cards;
}

/// The slots that rank 0 decides on when the transports want slots of `slot_bytes`.
int decided_slots(const std::vector<Wish>& wishes, std::size_t slot_bytes) {
  whorl::Setup setup;
  EXPECT_TRUE(make_membership(setup, cards_of(wishes), {}, 0).ok());
  if (setup.membership->slot_bytes == 0) setup.membership->slot_bytes = slot_bytes;
  const auto decided = decide(*setup.membership, {}, {}, [](int, std::size_t) { return 0UL; });
  EXPECT_TRUE(decided.ok()) << decided.status().message();
  EXPECT_TRUE(check(*decided, *setup.membership).ok());
  return decided.ok() ? static_cast<int>(decided->memory.slots) : 0;
}

TEST(Cards, AnyRankMayAskForSlots) {
  constexpr std::size_t kKiB = 1024;
  EXPECT_EQ(decided_slots({{}, {}}, 64 * kKiB), 16);
  EXPECT_EQ(decided_slots({{}, {}}, 512 * kKiB), 4);
  EXPECT_EQ(decided_slots({{.slots = 16}, {}}, 512 * kKiB), 16);
  EXPECT_EQ(decided_slots({{}, {.slots = 16}}, 512 * kKiB), 16);
  EXPECT_EQ(decided_slots({{.slots = 16}, {.slots = 5}, {}}, 64 * kKiB), 5);
}

TEST(Cards, TheSmallestSlotThatAnyRankAsksForCounts) {
  whorl::Setup setup;
  ASSERT_TRUE(
      make_membership(setup, cards_of({{}, {.slot_bytes = 4096}, {.slot_bytes = 1024}}), {}, 1)
          .ok());
  EXPECT_EQ(setup.membership->slot_bytes, 1024);
  ASSERT_TRUE(make_membership(setup, cards_of({{}, {}}), {}, 1).ok());
  EXPECT_EQ(setup.membership->slot_bytes, 0);
}

TEST(Cards, OtherVersionsAreRefused) {
  whorl::Setup setup;
  std::vector<RankCard> cards = cards_of({{}, {}});
  cards[1].version = kWireVersion + 1;
  EXPECT_NE(make_membership(setup, cards, {}, 0).message().find("wire version"), std::string::npos);
}

} // namespace
} // namespace whorl
