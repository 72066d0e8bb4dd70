// Tests of rank 0's decisions for all ranks, made from their PeerInfos, and of the decisions that
// other ranks accept.
#include "comm/decisions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace whorl {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kKiB = 1024;

/// Makes ranks on hosts with these keys, each of which is a machine, without any requests.
Membership members_on(const std::vector<std::uint64_t>& hosts) {
  Membership members;
  members.nranks = static_cast<int>(hosts.size());
  members.peers.resize(hosts.size());
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    members.peers[rank].rank = static_cast<std::uint32_t>(rank);
    members.peers[rank].host_key = hosts[rank];
    members.peers[rank].machine_key = hosts[rank];
  }
  members.channels = 3;
  members.slots = 16;
  members.slot_bytes = 64 * kKiB;
  return members;
}
Membership on_one_host(int nranks) {
  return members_on(std::vector<std::uint64_t>(static_cast<std::size_t>(nranks), 7));
}

/// Returns the size of endpoints that take no memory.
std::size_t nothing(int, std::size_t) { return 0; }
/// Returns the size of endpoints that take the memory of their slots.
std::size_t small(int slots, std::size_t slot_bytes) {
  return static_cast<std::size_t>(slots) * slot_bytes;
}
/// Returns the size of endpoints that exceed every machine's memory.
std::size_t vast(int slots, std::size_t slot_bytes) {
  return small(slots, slot_bytes) * (std::size_t{1} << 34);
}

Decisions decided(const Membership& members, const Options& options = {},
                  const LinkCosts& links = {}, // all but levels
                  std::size_t (*endpoints)(int, std::size_t) = nothing) {
  const auto decisions = decide(members, options, {.common = links}, endpoints);
  EXPECT_TRUE(decisions.ok()) << decisions.status().message();
  if (!decisions.ok()) return {};
  EXPECT_TRUE(check(*decisions, members).ok()) << "the other ranks refuse it";
  return *decisions;
}

std::string dims_of(const Decisions& decisions) { return decisions.dims.data(); }

TEST(Decide, ChannelsAreRank0sAsFarAsAllHaveThem) {
  Membership members = on_one_host(2);
  Options options;
  options.channels = 2;
  EXPECT_EQ(decided(members, options).channels, 2);
  options.channels = 16;
  EXPECT_EQ(decided(members, options).channels, 2); // the third channel is for sends and receives
  members.channels = 17;
  EXPECT_EQ(decided(members, options).channels, 16);
  EXPECT_EQ(decided(members, options).memory.channels, 17U);
}

TEST(Decide, SlotsFillTheCacheOfACore) {
  LinkCosts links;
  links.cache_bytes = 512 * kKiB;
  EXPECT_EQ(decided(on_one_host(2), {}, links).memory.slots, 8U);
  links.cache_bytes = 768 * kKiB;
  EXPECT_EQ(decided(on_one_host(2), {}, links).memory.slots, 12U);
  links.cache_bytes = 64 << 20;
  EXPECT_EQ(decided(on_one_host(2), {}, links).memory.slots, 16U);
  links.cache_bytes = 1; // clamped to half a MiB
  EXPECT_EQ(decided(on_one_host(2), {}, links).memory.slots, 8U);
}

TEST(Decide, SlotsAreFewerWithManyPeersAndLargeMessages) {
  LinkCosts links;
  links.cache_bytes = 64 << 20;
  EXPECT_EQ(decided(on_one_host(9), {}, links).memory.slots, 16U);
  EXPECT_EQ(decided(on_one_host(17), {}, links).memory.slots, 8U);
  EXPECT_EQ(decided(on_one_host(200), {}, links).memory.slots, 8U);
  Membership large = on_one_host(17);
  large.slot_bytes = 512 * kKiB;
  EXPECT_EQ(decided(large, {}, links).memory.slots, 4U);
}

TEST(Decide, RanksThatShareACoreShareItsCache) {
  LinkCosts links;
  links.ranks_per_core = 2;
  EXPECT_EQ(decided(on_one_host(4), {}, links).memory.slots, 4U);
}

TEST(Decide, SlotsThatAnyRankAsksForAreKept) {
  Membership members = on_one_host(17);
  members.peers[3].slots = 13;
  members.slots = 13;
  LinkCosts links;
  links.ranks_per_core = 4;
  EXPECT_EQ(decided(members, {}, links).memory.slots, 13U);
  EXPECT_EQ(decided(members, {}, links, vast).memory.slots, 13U) << "also if memory is short";
}

TEST(Decide, WhereNobodyAsksSizesShrinkUntilMemorySuffices) {
  const MemorySizes memory = decided(on_one_host(2), {}, {}, vast).memory;
  EXPECT_EQ(memory.slots, 2U);
  EXPECT_EQ(memory.slot_bytes, 1024U);
  EXPECT_EQ(memory.workspace_bytes, UINT64_MAX);
  Membership given = on_one_host(2);
  given.peers[1].slot_bytes = 32 * kKiB;
  given.slot_bytes = 32 * kKiB;
  EXPECT_EQ(decided(given, {}, {}, vast).memory.slot_bytes, 32 * kKiB);
}

TEST(Decide, TheSmallestBudgetOfAnyRankCounts) {
  Membership members = on_one_host(3);
  EXPECT_EQ(members.smallest_budget(), 0U);
  members.peers[2].memory_budget = 9 << 20;
  EXPECT_EQ(members.smallest_budget(), 9U << 20U);
  members.peers[1].memory_budget = 1 << 20;
  members.peers[0].memory_budget = 2 << 20;
  EXPECT_EQ(members.smallest_budget(), 1U << 20U);
  const MemorySizes memory = decided(members, {}, {}, small).memory;
  EXPECT_EQ(memory.channels * small(static_cast<int>(memory.slots), memory.slot_bytes) +
                memory.workspace_bytes,
            1U << 20U);
}

TEST(Decide, ABudgetShrinksAlsoWhatRanksAskFor) {
  Membership members = on_one_host(2);
  members.peers[0].slots = 16;
  members.peers[0].slot_bytes = 64 * kKiB;
  members.peers[1].memory_budget = 100'000;
  const Decisions decisions = decided(members, {}, {}, small);
  EXPECT_LT(decisions.memory.slot_bytes, 64 * kKiB);
  EXPECT_LE(decisions.memory.channels *
                small(static_cast<int>(decisions.memory.slots), decisions.memory.slot_bytes),
            100'000U);
  EXPECT_EQ(decisions.links.slots, decisions.memory.slots);
  EXPECT_EQ(decisions.links.message_bytes, decisions.memory.slot_bytes);
}

TEST(Decide, ATooSmallBudgetIsRefused) {
  Membership members = on_one_host(2);
  members.peers[1].memory_budget = 100;
  const auto refused = decide(members, {}, {}, small);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kInvalidUsage);
  EXPECT_THAT(refused.status().message(), HasSubstr("a memory budget of 100 bytes is too small"));
}

TEST(Decide, HostsWithAsManyRanksAreDimensions) {
  EXPECT_EQ(dims_of(decided(members_on({1, 1, 2, 2, 3, 3}))), "2,3");
  EXPECT_EQ(dims_of(decided(members_on({1, 1, 1}))), "") << "one host";
  EXPECT_EQ(dims_of(decided(members_on({1, 2, 3}))), "") << "one rank on each";
  EXPECT_EQ(dims_of(decided(members_on({1, 1, 2}))), "") << "different numbers";
  EXPECT_EQ(dims_of(decided(members_on({1, 2, 1, 2}))), "2,2") << "numbered across hosts";
  EXPECT_EQ(dims_of(decided(members_on({1, 1, 2, 2, 2, 2}))), "") << "a host is larger";
}

TEST(Decide, DimensionsOfTheUserReplaceThoseOfHosts) {
  Options options;
  options.dims = "3:ring,2";
  EXPECT_EQ(dims_of(decided(members_on({1, 1, 2, 2, 3, 3}), options)), "3:ring,2");
}

TEST(Decide, WrongOptionsOfRank0AreRefused) {
  Options dims, algorithms;
  dims.dims = "4,2";
  const auto product = decide(on_one_host(6), dims, {}, nothing);
  ASSERT_FALSE(product.ok());
  EXPECT_EQ(product.status().code(), Code::kInvalidUsage);
  EXPECT_THAT(product.status().message(), HasSubstr("WHORL_DIMS"));
  algorithms.algorithms = "allreduce:magic";
  const auto unknown = decide(on_one_host(6), algorithms, {}, nothing);
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.status().message(), HasSubstr("magic"));
}

TEST(Decide, PartsOfACommunicatorDoWithoutSettingsThatDoNotFit) {
  Options options;
  options.dims = "2:ring,2";
  options.algorithms = "allreduce:ring,allgather:doubling,barrier:doubling";
  options.made_of_another = true;
  const Decisions three = decided(on_one_host(3), options);
  Options fitting;
  fitting.algorithms = "allreduce:ring,barrier:doubling"; // the other one needs a power of two
  EXPECT_EQ(dims_of(three), dims_of(decided(on_one_host(3), fitting)));
  const auto algorithm = [](const Decisions& decisions, Collective collective) {
    return decisions.selector.pick(collective, 8).name;
  };
  EXPECT_EQ(algorithm(three, Collective::kAllReduce), "ring");
  EXPECT_NE(algorithm(three, Collective::kAllGather), "doubling");
  EXPECT_EQ(algorithm(three, Collective::kBarrier), "doubling");

  options.dims = "3:nonsense"; // fits no communicator
  const auto nonsense = decide(on_one_host(3), options, {}, nothing);
  ASSERT_FALSE(nonsense.ok());
  EXPECT_THAT(nonsense.status().message(), HasSubstr("there is no algorithm \"nonsense\""));
  options.dims = "2:ring,2";

  const Decisions four = decided(on_one_host(4), options);
  EXPECT_EQ(dims_of(four), "2:ring,2");
  EXPECT_EQ(algorithm(four, Collective::kAllGather), "doubling");
}

TEST(Decide, TooLongDimensionsAreRefused) {
  Options options;
  for (int i = 0; i < 150; ++i) options.dims += "1,";
  options.dims += "2";
  const auto refused = decide(on_one_host(2), options, {}, nothing);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kInvalidUsage);
  EXPECT_THAT(refused.status().message(), HasSubstr("WHORL_DIMS is longer than 251 characters"));
}

TEST(Decide, RingsVisitHostAfterHost) {
  const auto ring = [](const Membership& members) {
    const auto shape = shape_of(decided(members), members);
    EXPECT_TRUE(shape.ok());
    return shape.ok() ? shape->order : std::vector<int>{-1};
  };
  EXPECT_EQ(ring(members_on({1, 2, 1, 2, 1})), (std::vector<int>{0, 2, 4, 1, 3}));
  EXPECT_EQ(ring(members_on({9, 3, 3, 9})), (std::vector<int>{0, 3, 1, 2}));
  EXPECT_EQ(ring(members_on({9, 9, 3, 3})), std::vector<int>{}) << "as the ranks are";
}

TEST(Decide, LinksAreMeasuredWhereRank0SaysSoAndThereAreAny) {
  Options options;
  EXPECT_FALSE(decided(on_one_host(2), options).probe);
  options.probe = true;
  EXPECT_TRUE(decided(on_one_host(2), options).probe);
  EXPECT_FALSE(decided(on_one_host(1), options).probe);
}

TEST(Decide, TheSameCardsGiveTheSameDecisions) {
  const Membership members = members_on({1, 1, 2, 2});
  const Decisions first = decided(members), second = decided(members);
  EXPECT_EQ(first.links, second.links);
  EXPECT_EQ(first.dims, second.dims);
  EXPECT_EQ(std::memcmp(&first.selector, &second.selector, sizeof first.selector), 0);
  EXPECT_EQ(std::memcmp(&first.memory, &second.memory, sizeof first.memory), 0);
}

TEST(CheckDecisions, RefusesWhatNoRank0Decides) {
  const Membership members = on_one_host(4);
  const Decisions good = decided(members);
  struct Case {
    const char* what;
    void (*spoil)(Decisions&);
  };
  const Case cases[] = {
      {"no channel", [](Decisions& d) { d.channels = 0; }},
      {"negative channels", [](Decisions& d) { d.channels = -1; }},
      {"no channel for sends", [](Decisions& d) { d.channels = 3; }},
      {"more channels than peers", [](Decisions& d) { d.memory.channels = 4; }},
      {"one slot", [](Decisions& d) { d.memory.slots = 1; }},
      {"more slots than peers", [](Decisions& d) { d.memory.slots = 17; }},
      {"no slot bytes", [](Decisions& d) { d.memory.slot_bytes = 0; }},
      {"odd slots", [](Decisions& d) { d.memory.slot_bytes = 100; }},
      {"slots larger than peers", [](Decisions& d) { d.memory.slot_bytes = 65536 + 64; }},
      {"dims of other ranks", [](Decisions& d) { std::strcpy(d.dims.data(), "5"); }},
      {"dims that are none", [](Decisions& d) { std::strcpy(d.dims.data(), "?"); }},
      {"dims without an end", [](Decisions& d) { d.dims.fill('1'); }},
      {"unknown algorithms",
       [](Decisions& d) { std::memset(static_cast<void*>(&d.selector), 200, sizeof d.selector); }},
      {"a flag that is none", [](Decisions& d) { d.probe = 2; }},
      {"no level", [](Decisions& d) { d.links.count = 0; }},
      {"more levels than there can be", [](Decisions& d) { d.links.count = kMaxLevels + 1; }},
      {"a level that is none",
       [](Decisions& d) { d.links.levels[0].scope = static_cast<Scope>(kScopes); }},
      {"a negative cost", [](Decisions& d) { d.links.levels[0].link.alpha_us = -1; }},
      {"a cost that is no number", [](Decisions& d) { d.links.gamma_us_per_kib = std::nan(""); }},
  };
  for (const Case& one : cases) {
    Decisions spoiled = good;
    one.spoil(spoiled);
    EXPECT_EQ(check(spoiled, members).code(), Code::kInternalError) << one.what;
  }
}

TEST(CheckDecisions, WhereNobodyAsksForASizeTheOthersTakeRank0s) {
  Membership members = on_one_host(2);
  Decisions decisions = decided(members);
  members.slot_bytes = 0; // unknown on all ranks but rank 0
  EXPECT_TRUE(check(decisions, members).ok());
  decisions.memory.slot_bytes = 1U << 30U;
  EXPECT_FALSE(check(decisions, members).ok());
}

} // namespace
} // namespace whorl
