#include "topology/rings.h"

#include <gtest/gtest.h>

#include "machines.h"

namespace whorl::topology {
namespace {

TEST(Rings, FillACubeMesh) {
  const Graph graph = read_machine(nccl_machine(8, cube_mesh()));
  const std::vector<Ring> rings = find_rings(graph, graph.all(NodeKind::kGpu));
  EXPECT_EQ(check_rings(graph, rings), 6); // each GPU has six links
  EXPECT_EQ(rings.front().bandwidth.gb_per_s, 25);
}

TEST(Rings, OfTwo) {
  const Graph graph = read_machine(nccl_machine(2, {{0, 1, 4}}));
  EXPECT_EQ(check_rings(graph, find_rings(graph, graph.all(NodeKind::kGpu))), 4);
}

TEST(Rings, OfAllPairs) {
  std::vector<GpuLink> links;
  for (int a = 0; a < 5; ++a) {
    for (int b = a + 1; b < 5; ++b) links.push_back({a, b, 1});
  }
  const Graph graph = read_machine(nccl_machine(5, links));
  EXPECT_EQ(check_rings(graph, find_rings(graph, graph.all(NodeKind::kGpu))), 4);
}

TEST(Rings, FollowTheTreeWithoutLinks) {
  // Two islands of links: no ring over links passes all.
  const Graph graph = read_machine(nccl_machine(4, {{0, 1, 2}, {2, 3, 2}}));
  const std::vector<Ring> rings = find_rings(graph, graph.all(NodeKind::kGpu));
  ASSERT_EQ(check_rings(graph, rings), 1);
  EXPECT_FALSE(rings.front().over_links);
  EXPECT_EQ(rings.front().bandwidth.gb_per_s, 10);
  int crossings = 0;
  const std::vector<int>& order = rings.front().order;
  for (std::size_t i = 0; i < order.size(); ++i) {
    crossings += graph.above(order[i], NodeKind::kNuma) !=
                 graph.above(order[(i + 1) % order.size()], NodeKind::kNuma);
  }
  EXPECT_EQ(crossings, 2); // once in each direction
}

TEST(Rings, OfVeryManyLinks) {
  const Graph graph =
      read_machine(nccl_machine(4, {{0, 1, 999}, {1, 2, 999}, {2, 3, 999}, {0, 3, 999}}));
  EXPECT_EQ(check_rings(graph, find_rings(graph, graph.all(NodeKind::kGpu))), 2 * 999);
}

TEST(Rings, EndInTime) {
  // Thirteen GPUs that are all linked, and one with no link: there is no ring, and much to try.
  std::vector<GpuLink> links;
  for (int a = 0; a < 13; ++a) {
    for (int b = a + 1; b < 13; ++b) links.push_back({a, b, 1});
  }
  const Graph graph = read_machine(nccl_machine(14, links));
  EXPECT_EQ(check_rings(graph, find_rings(graph, graph.all(NodeKind::kGpu))), 1);
}

} // namespace
} // namespace whorl::topology
