// Tests of the requests in the ranks' PeerInfos and of the decisions on them.
#include "comm/rank_info.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "algorithms/algorithm.h"
#include "comm/decisions.h"
#include "exec/chunk_map.h"

namespace whorl {
namespace {

/// Request of one rank.
struct Wish {
  std::uint32_t slots = 0, slot_bytes = 0;
};

std::vector<PeerInfo> infos_of(const std::vector<Wish>& wishes) {
  std::vector<PeerInfo> peers(wishes.size());
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    peers[rank].rank = static_cast<std::uint32_t>(rank);
    peers[rank].version = kWireVersion;
    peers[rank].slots = wishes[rank].slots;
    peers[rank].slot_bytes = wishes[rank].slot_bytes;
    peers[rank].channels = 3;
  }
  return peers;
}

/// Returns the number of slots that rank 0 decides on if the transports want slots of `slot_bytes`.
int decided_slots(const std::vector<Wish>& wishes, std::size_t slot_bytes) {
  whorl::Setup setup;
  EXPECT_TRUE(make_membership(setup, infos_of(wishes), {}, 0).ok());
  if (setup.membership->slot_bytes == 0) setup.membership->slot_bytes = slot_bytes;
  const auto decided = decide(*setup.membership, {}, {}, [](int, std::size_t) { return 0UL; });
  EXPECT_TRUE(decided.ok()) << decided.status().message();
  EXPECT_TRUE(check(*decided, *setup.membership).ok());
  return decided.ok() ? static_cast<int>(decided->memory.slots) : 0;
}

TEST(RankInfo, AnyRankMayAskForSlots) {
  constexpr std::size_t kKiB = 1024;
  EXPECT_EQ(decided_slots({{}, {}}, 64 * kKiB), 16);
  EXPECT_EQ(decided_slots({{}, {}}, 512 * kKiB), 4);
  EXPECT_EQ(decided_slots({{.slots = 16}, {}}, 512 * kKiB), 16);
  EXPECT_EQ(decided_slots({{}, {.slots = 16}}, 512 * kKiB), 16);
  EXPECT_EQ(decided_slots({{.slots = 16}, {.slots = 5}, {}}, 64 * kKiB), 5);
}

TEST(RankInfo, TheSmallestSlotThatAnyRankAsksForCounts) {
  whorl::Setup setup;
  ASSERT_TRUE(
      make_membership(setup, infos_of({{}, {.slot_bytes = 4096}, {.slot_bytes = 1024}}), {}, 1)
          .ok());
  EXPECT_EQ(setup.membership->slot_bytes, 1024);
  ASSERT_TRUE(make_membership(setup, infos_of({{}, {}}), {}, 1).ok());
  EXPECT_EQ(setup.membership->slot_bytes, 0);
}

/// Messages of some algorithms hold an element for every other rank.
TEST(RankInfo, SlotsHaveRoomForAnElementOfEachRank) {
  std::vector<Wish> asked(400);
  asked[7].slot_bytes = 1024;
  whorl::Setup setup;
  ASSERT_TRUE(make_membership(setup, infos_of(asked), {}, 1).ok());
  EXPECT_EQ(setup.membership->slot_bytes, 3200);
  for (const Algorithm& algorithm : all_algorithms()) {
    const Shape shape{.nranks = 400};
    if (!algorithm.supports(shape)) continue;
    const auto map = ChunkMap::make(build_schedule(algorithm, shape, 0), 1, sizeof(double),
                                    setup.membership->slot_bytes);
    EXPECT_TRUE(map.ok()) << algorithm.name << ": " << map.status().message();
  }
}

TEST(RankInfo, RatesThatNoNicHasAreRefused) {
  for (const double rate : {-1.0, 1e12, std::numeric_limits<double>::quiet_NaN()}) {
    whorl::Setup setup;
    for (double RankPlace::*field :
         {&RankPlace::nic_gb_per_s, &RankPlace::leaf_gb_per_s, &RankPlace::pod_gb_per_s}) {
      std::vector<PeerInfo> peers = infos_of({{}, {}});
      peers[1].place.*field = rate;
      const Status refused = make_membership(setup, peers, {}, 0);
      const char* const what = field == &RankPlace::nic_gb_per_s ? "NIC" : "switch";
      EXPECT_NE(refused.message().find(fmt::format("info of rank 1 of 2 is malformed: {}", what)),
                std::string::npos)
          << rate << ": " << refused.message();
    }
  }
}

TEST(RankInfo, HostNamesThatWouldControlATerminalAreRefused) {
  whorl::Setup setup;
  std::vector<PeerInfo> peers = infos_of({{}, {}});
  std::copy_n("node\x1b[31m", 10, peers[1].host_name.begin());
  EXPECT_EQ(make_membership(setup, peers, {}, 0).message(),
            "the info of rank 1 of 2 is malformed: host name");
}

TEST(RankInfo, ADisagreementAboutEncryptionNamesBothRanks) {
  whorl::Setup setup;
  std::vector<PeerInfo> peers = infos_of({{}, {}});
  std::copy_n("node7", 6, peers[1].host_name.begin());
  peers[1].encrypts = 1;
  EXPECT_EQ(make_membership(setup, peers, {}, 0).message(),
            "WHORL_ENCRYPT is 1 on rank 1 (host node7, pid 0) and 0 on rank 0 (host , pid 0); set "
            "it alike everywhere");
  peers[1].encrypts = 2;
  EXPECT_EQ(make_membership(setup, peers, {}, 0).message(),
            "the info of rank 1 of 2 is malformed: encryption");
}

TEST(RankInfo, OtherVersionsAreRefused) {
  whorl::Setup setup;
  std::vector<PeerInfo> peers = infos_of({{}, {}});
  peers[1].version = kWireVersion + 1;
  EXPECT_NE(make_membership(setup, peers, {}, 0).message().find("wire version"), std::string::npos);
}

} // namespace
} // namespace whorl
