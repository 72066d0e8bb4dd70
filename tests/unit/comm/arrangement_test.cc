// Tests of the arrangement of ranks by their places.
#include "comm/arrangement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace whorl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Place of a rank in a test; hosts are numbered from 1.
struct Spot {
  std::uint64_t host = 1;
  int package = -1, numa = -1, cache = -1;
  std::uint64_t leaf = 0, pod = 0;
  int nic_numa = -1;
};

std::vector<PeerInfo> peers_at(const std::vector<Spot>& spots) {
  std::vector<PeerInfo> peers(spots.size());
  for (std::size_t rank = 0; rank < spots.size(); ++rank) {
    const Spot& spot = spots[rank];
    PeerInfo& info = peers[rank];
    info.rank = static_cast<std::uint32_t>(rank);
    info.host_key = info.machine_key = spot.host;
    info.place.package = spot.package;
    info.place.numa = spot.numa;
    info.place.cache = spot.cache;
    info.place.nic_numa = spot.nic_numa;
    info.place.leaf = spot.leaf;
    info.place.pod = spot.pod;
  }
  return peers;
}
std::vector<PeerInfo> on_hosts(const std::vector<std::uint64_t>& hosts) {
  std::vector<Spot> spots;
  for (const std::uint64_t host : hosts) spots.push_back({.host = host});
  return peers_at(spots);
}

std::vector<int> sizes(const Arrangement& arrangement) {
  std::vector<int> all;
  for (const Dimension& dim : arrangement.dims) all.push_back(dim.size);
  return all;
}

TEST(Arrange, HostsOfEqualSizeAreALevel) {
  const Arrangement found = arrange(on_hosts({1, 1, 2, 2, 3, 3}));
  EXPECT_THAT(found.order, IsEmpty());
  EXPECT_THAT(sizes(found), ElementsAre(2, 3));
}

TEST(Arrange, NoLevelWhereThereIsOneGroupOrOneRankInEach) {
  for (const auto& hosts : {std::vector<std::uint64_t>{1}, {1, 1, 1}, {1, 2, 3}}) {
    const Arrangement found = arrange(on_hosts(hosts));
    EXPECT_THAT(found.order, IsEmpty());
    EXPECT_THAT(found.dims, IsEmpty());
  }
}

TEST(Arrange, RanksNumberedAcrossHostsAreOrderedByHost) {
  const Arrangement found = arrange(on_hosts({9, 3, 9, 3}));
  EXPECT_THAT(found.order, ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(sizes(found), ElementsAre(2, 2));
}

TEST(Arrange, HostsOfDifferentSizesAreGroups) {
  const Arrangement found = arrange(on_hosts({1, 2, 1, 1, 2, 1, 1, 2}));
  EXPECT_THAT(found.order, ElementsAre(0, 2, 3, 5, 6, 1, 4, 7));
  EXPECT_THAT(found.dims, IsEmpty());
  EXPECT_THAT(found.groups, ElementsAre(5, 3));
  EXPECT_THAT(arrange(on_hosts({1, 1, 2, 2})).groups, IsEmpty());
}

TEST(Arrange, SwitchesAreLevelsAboveHosts) {
  std::vector<Spot> spots;
  for (std::uint64_t host = 0; host < 8; ++host) {
    for (int i = 0; i < 3; ++i)
      spots.push_back({.host = host + 1, .leaf = 1 + host / 2, .pod = 1 + host / 4});
  }
  const Arrangement found = arrange(peers_at(spots));
  EXPECT_THAT(sizes(found), ElementsAre(3, 2, 2, 2));
  EXPECT_THAT(found.order, IsEmpty());

  // One rank on each host: then leaf switches are the innermost level.
  std::vector<Spot> single;
  for (std::uint64_t host = 0; host < 8; ++host)
    single.push_back({.host = host + 1, .leaf = 1 + host % 2});
  const Arrangement leaves = arrange(peers_at(single));
  EXPECT_THAT(sizes(leaves), ElementsAre(4, 2));
  EXPECT_THAT(leaves.order, ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));

  // A host whose switch is unknown: no level of switches.
  spots[4].leaf = 0;
  EXPECT_THAT(sizes(arrange(peers_at(spots))), ElementsAre(3, 4, 2)) << "pods are still known";
}

TEST(Arrange, ASingleHostIsDividedOnceByItsLargestParts) {
  std::vector<Spot> spots;
  for (int i = 0; i < 8; ++i) spots.push_back({.package = i / 4, .numa = i / 2, .cache = i});
  const Arrangement found = arrange(peers_at(spots));
  EXPECT_THAT(sizes(found), ElementsAre(4, 2));
  for (Spot& spot : spots) spot.package = 0;
  EXPECT_THAT(sizes(arrange(peers_at(spots))), ElementsAre(2, 4)) << "NUMA nodes";
  for (Spot& spot : spots) spot.numa = 0;
  EXPECT_THAT(sizes(arrange(peers_at(spots))), IsEmpty()) << "each rank has a cache of its own";
  spots[5].package = -1; // this rank is not bound, so nothing follows from the others' places
  for (std::size_t i = 0; i < 8; ++i) spots[i].numa = static_cast<int>(i) / 4;
  EXPECT_THAT(sizes(arrange(peers_at(spots))), ElementsAre(4, 2)) << "NUMA nodes";
}

TEST(Arrange, PartsOfHostsOnlyOrderRanksWhereThereAreSeveralHosts) {
  std::vector<Spot> spots;
  for (int i = 0; i < 8; ++i)
    spots.push_back({.host = 1 + static_cast<std::uint64_t>(i) / 4, .package = i % 2});
  const Arrangement found = arrange(peers_at(spots));
  EXPECT_THAT(sizes(found), ElementsAre(4, 2));
  EXPECT_THAT(found.order, ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
}

TEST(Arrange, RanksNearTheNicComeFirst) {
  std::vector<Spot> spots;
  for (int i = 0; i < 8; ++i) {
    spots.push_back({.host = 1 + static_cast<std::uint64_t>(i) / 4,
                     .package = i % 4 / 2,
                     .numa = i % 4,
                     .nic_numa = 3});
  }
  EXPECT_THAT(arrange(peers_at(spots)).order, ElementsAre(3, 2, 0, 1, 7, 6, 4, 5));
  for (Spot& spot : spots) spot.host = 1; // without other hosts there is no NIC to be near to
  EXPECT_THAT(arrange(peers_at(spots)).order, ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
}

TEST(Arrange, EveryOrderIsAPermutationThatKeepsPartsTogether) {
  constexpr unsigned kSeed = 20261124;
  std::mt19937 random(kSeed);
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<Spot> spots(static_cast<std::size_t>(1 + below(40)));
    for (Spot& spot : spots) {
      spot = {.host = 1 + static_cast<std::uint64_t>(below(4)),
              .package = below(2),
              .numa = below(4),
              .cache = below(8)};
      spot.leaf = 1 + spot.host % 2;
    }
    const std::vector<PeerInfo> peers = peers_at(spots);
    Arrangement found = arrange(peers);
    if (found.order.empty()) continue;
    std::vector<int> sorted = found.order;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < sorted.size(); ++i)
      ASSERT_EQ(sorted[i], static_cast<int>(i)) << "seed " << kSeed;
    // Each host is one run of places.
    std::vector<std::uint64_t> runs;
    for (const int rank : found.order) {
      const std::uint64_t host = peers[static_cast<std::size_t>(rank)].host_key;
      if (runs.empty() || runs.back() != host) runs.push_back(host);
    }
    std::sort(runs.begin(), runs.end());
    ASSERT_EQ(std::adjacent_find(runs.begin(), runs.end()), runs.end())
        << "seed " << kSeed << " trial " << trial;
    int product = 1;
    for (const Dimension& dim : found.dims) product *= dim.size;
    ASSERT_EQ(product, found.dims.empty() ? 1 : static_cast<int>(spots.size()));
  }
}

TEST(Arrange, SwitchesThatCarryAllThatHostsSendAreNoLevel) {
  const auto levels = [](double nic, double leaf) {
    std::vector<PeerInfo> peers;
    for (std::uint64_t host = 1; host <= 4; ++host) {
      for (int i = 0; i < 2; ++i) {
        PeerInfo& info = peers.emplace_back();
        info.host_key = info.machine_key = host;
        info.place.leaf = (host + 1) / 2;
        info.place.nic_gb_per_s = nic;
        info.place.leaf_gb_per_s = leaf;
      }
    }
    return sizes(arrange(peers));
  };
  EXPECT_THAT(levels(25, 50), ElementsAre(2, 4));
  EXPECT_THAT(levels(25, 49), ElementsAre(2, 2, 2));
  EXPECT_THAT(levels(25, 0), ElementsAre(2, 2, 2)); // unknown
  EXPECT_THAT(levels(0, 50), ElementsAre(2, 2, 2));
}

TEST(Arrange, IsDescribed) {
  const auto text = [](const std::vector<PeerInfo>& peers) {
    return describe(arrange(peers), peers);
  };
  EXPECT_EQ(text(on_hosts({1})), "1 rank on 1 host");
  EXPECT_EQ(text(on_hosts({1, 1, 2, 2, 3, 3})), "6 ranks on 3 hosts (3 × 2)");
  EXPECT_EQ(text(on_hosts({1, 2, 1, 2, 1})), "5 ranks on 2 hosts (3 + 2), numbered across them");
  EXPECT_EQ(text(peers_at({{.package = 0}, {.package = 1}})),
            "2 ranks on 2 packages (2 × 1), 1 host");
}

TEST(TopologyDigest, DependsOnTheTopologyAlone) {
  EXPECT_EQ(topology_digest(on_hosts({1, 1, 2, 2})), topology_digest(on_hosts({77, 77, 5, 5})));
  EXPECT_NE(topology_digest(on_hosts({1, 1, 2, 2})), topology_digest(on_hosts({1, 2, 1, 2})));
  EXPECT_NE(topology_digest(on_hosts({1, 1})), topology_digest(on_hosts({1, 1, 1})));
  auto rated = on_hosts({1, 2});
  rated[1].place.nic_gb_per_s = 12.5;
  EXPECT_NE(topology_digest(on_hosts({1, 2})), topology_digest(rated));
  auto switched = rated;
  switched[1].place.leaf_gb_per_s = 12.5;
  EXPECT_NE(topology_digest(switched), topology_digest(rated));
}

} // namespace
} // namespace whorl
