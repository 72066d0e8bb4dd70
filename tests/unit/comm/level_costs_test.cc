// Tests of the costs of levels, made from those by what ranks share.
#include "comm/level_costs.h"

#include <gtest/gtest.h>

namespace whorl {
namespace {

/// Place of a rank in a test.
struct Spot {
  std::uint64_t host = 1;
  int cache = -1;
  std::uint64_t leaf = 0, pod = 0;
};
std::vector<PeerInfo> peers_at(const std::vector<Spot>& spots) {
  std::vector<PeerInfo> peers(spots.size());
  for (std::size_t rank = 0; rank < spots.size(); ++rank) {
    peers[rank].host_key = spots[rank].host;
    peers[rank].place = {
        .cache = spots[rank].cache, .leaf = spots[rank].leaf, .pod = spots[rank].pod};
  }
  return peers;
}

TEST(CommonScope, IsTheSmallestPartThatIsKnownToHoldBoth) {
  struct Case {
    Spot a, b;
    Scope scope;
  };
  for (const Case& one : {Case{{1, 0}, {1, 0}, Scope::kCache}, Case{{1, 0}, {1, 1}, Scope::kHost},
                          Case{{1}, {1}, Scope::kHost}, Case{{1, 0}, {2, 0}, Scope::kNetwork},
                          Case{{1, 0, 5, 9}, {2, 0, 5, 9}, Scope::kLeaf},
                          Case{{1, 0, 5, 9}, {2, 0, 6, 9}, Scope::kPod},
                          Case{{1, 0, 5, 9}, {2, 0, 6, 8}, Scope::kNetwork}}) {
    const auto peers = peers_at({one.a, one.b});
    EXPECT_EQ(common_scope(peers[0], peers[1]), one.scope);
    EXPECT_EQ(common_scope(peers[1], peers[0]), one.scope);
  }
}

/// Returns costs whose boundary is the number of the scope, from 1.
CostTable numbered() {
  CostTable table;
  for (std::size_t scope = 0; scope < kScopes; ++scope) {
    table.scopes[scope] = {.boundary_us_per_kib = static_cast<double>(scope + 1),
                           .scope = static_cast<Scope>(scope)};
  }
  return table;
}

TEST(CostsOfLevels, FollowWhatTheGroupsShare) {
  struct Case {
    Shape shape;
    std::vector<Spot> spots;
    std::vector<Scope> scopes;
    std::vector<double> boundaries;
  };
  const Spot a{1, -1, 5}, b{2, -1, 5}, c{3, -1, 6}, d{4, -1, 6};
  for (const Case& one : {
           Case{{.nranks = 2}, {{1}, {1}}, {Scope::kHost}, {0}},
           Case{{.nranks = 4, .dims = {{2}, {2}}},
                {a, a, b, b},
                {Scope::kHost, Scope::kLeaf},
                {2, 0}},
           // Ranks that are numbered across hosts are ordered by host first.
           Case{{.nranks = 4, .order = {0, 2, 1, 3}, .dims = {{2}, {2}}},
                {a, b, a, b},
                {Scope::kHost, Scope::kLeaf},
                {2, 0}},
           Case{{.nranks = 8, .dims = {{2}, {2}, {2}}},
                {a, a, b, b, c, c, d, d},
                {Scope::kHost, Scope::kLeaf, Scope::kNetwork},
                {2, 3, 0}},
           Case{{.nranks = 4, .groups = {3, 1}},
                {a, a, a, c},
                {Scope::kHost, Scope::kNetwork},
                {2, 0}},
           // Two groups of a host share its boundary, so that no group's is known.
           Case{{.nranks = 8, .dims = {{2}, {4}}},
                {a, a, a, a, b, b, b, b},
                {Scope::kHost, Scope::kLeaf},
                {0, 0}},
           // A group that is not on one host.
           Case{{.nranks = 4, .dims = {{2}, {2}}},
                {a, c, b, d},
                {Scope::kNetwork, Scope::kNetwork},
                {0, 0}},
           Case{{.nranks = 4, .dims = {{2}, {2}}},
                {{1, 0}, {1, 0}, {1, 7}, {1, 7}},
                {Scope::kCache, Scope::kHost},
                {1, 0}},
       }) {
    const LinkCosts costs = costs_of_levels(numbered(), one.shape, peers_at(one.spots));
    ASSERT_EQ(costs.count, one.scopes.size());
    for (std::size_t level = 0; level < costs.count; ++level) {
      EXPECT_EQ(costs.levels[level].scope, one.scopes[level]);
      EXPECT_EQ(costs.levels[level].boundary_us_per_kib, one.boundaries[level]);
    }
  }
}

} // namespace
} // namespace whorl
