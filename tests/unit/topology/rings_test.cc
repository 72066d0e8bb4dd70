#include "topology/rings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "machines.h"
#include "topology/paths.h"
#include "topology/routes.h"

namespace whorl::topology {
namespace {

std::vector<GpuLink> all_pairs(int gpus) {
  std::vector<GpuLink> links;
  for (int a = 0; a < gpus; ++a) {
    for (int b = a + 1; b < gpus; ++b) links.push_back({a, b, 1});
  }
  return links;
}

struct Case {
  const char* name;
  int gpus = 0;
  std::vector<GpuLink> links; ///< of 25 GB/s; PCI has 15.75, the link between processors 10
  int rings = 0;
  double gb_per_s = 0; ///< of all rings together
  RingWay way = RingWay::kLinks;
};

const std::vector<Case> kCases = {
    {"pair", 2, {{0, 1, 4}}, 4, 100, RingWay::kLinks},
    {"pair without links", 2, {}, 1, 10, RingWay::kTree},
    {"tree", 8, {}, 1, 10, RingWay::kTree},
    // Each of the twelve hops is in two of the six rings.
    {"four, all pairs", 4, all_pairs(4), 6, 75, RingWay::kLinks},
    {"five, all pairs", 5, all_pairs(5), 4, 100, RingWay::kLinks},
    // Each GPU has six links; those that none connects are at different processors.
    {"cube mesh", 8, cube_mesh(), 6, 150, RingWay::kLinks},
    // Two pairs, each of one processor: all data crosses between the processors.
    {"pairs", 4, {{0, 1, 2}, {2, 3, 2}}, 1, 10, RingWay::kMixed},
    // Two pairs, each of both processors: in each direction one ring crosses twice by the PCI of
    // one processor's GPUs, and another by the other's.
    {"pairs across", 4, {{0, 2, 2}, {1, 3, 2}}, 2, 31.5, RingWay::kMixed},
    // Two circles, each of GPUs of both processors: all PCI links of GPUs are full.
    {"circles across",
     8,
     {{0, 1, 1}, {1, 5, 1}, {5, 4, 1}, {4, 0, 1}, {2, 3, 1}, {3, 7, 1}, {7, 6, 1}, {6, 2, 1}},
     8,
     63,
     RingWay::kMixed},
    {"very many links",
     4,
     {{0, 1, 999}, {1, 2, 999}, {2, 3, 999}, {0, 3, 999}},
     2 * 999,
     49950,
     RingWay::kLinks},
};

TEST(Rings, CarryWhatIsExpected) {
  for (const Case& it : kCases) {
    SCOPED_TRACE(it.name);
    const Graph graph = read_machine(nccl_machine(it.gpus, it.links));
    const std::vector<Ring> rings = find_rings(graph, graph.all(NodeKind::kGpu));
    EXPECT_EQ(check_rings(graph, rings), it.rings);
    EXPECT_NEAR(sum_of(rings), it.gb_per_s, 0.02);
    bool mixed = it.way != RingWay::kMixed;
    for (const Ring& ring : rings) {
      EXPECT_TRUE(ring.way == it.way || it.way == RingWay::kMixed) << name_of(ring.way);
      mixed = mixed || ring.way != RingWay::kLinks;
    }
    EXPECT_TRUE(mixed);
  }
}

TEST(Rings, OfTheTreeCrossEachBoundaryOnce) {
  const Graph graph = read_machine(nccl_machine(8, {}));
  std::vector<int> gpus = graph.all(NodeKind::kGpu);
  std::reverse(gpus.begin(), gpus.end());
  const std::vector<Ring> rings = find_rings(graph, gpus);
  ASSERT_EQ(check_rings(graph, rings), 1);
  int crossings = 0;
  const std::vector<int>& order = rings.front().order;
  for (std::size_t i = 0; i < order.size(); ++i) {
    crossings += graph.above(order[i], NodeKind::kNuma) !=
                 graph.above(order[(i + 1) % order.size()], NodeKind::kNuma);
  }
  EXPECT_EQ(crossings, 2); // once in each direction
}

TEST(Rings, EndInTime) {
  // Thirteen GPUs that are all linked, and one with no link: there is no ring over links, and much
  // to try.
  Graph graph = read_machine(nccl_machine(14, all_pairs(13)));
  EXPECT_GE(check_rings(graph, find_rings(graph, graph.all(NodeKind::kGpu))), 1);
}

/// Makes a machine by chance, with parts and links of known and unknown capacity.
Graph random_machine(unsigned seed, int gpus) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t end) { return static_cast<int>(random() % end); };
  const auto bandwidth = [&]() -> Bandwidth {
    if (below(4) == 0) return {};
    return {.gb_per_s = 4.0 + below(60),
            .origin = below(2) == 0 ? Origin::kTable : Origin::kReported};
  };
  Graph graph;
  graph.nodes.push_back({.kind = NodeKind::kMachine});
  std::vector<int> inner = {0};
  const auto add = [&](NodeKind kind, int parent) {
    graph.nodes.push_back({.kind = kind, .parent = parent, .up = bandwidth()});
    return static_cast<int>(graph.nodes.size()) - 1;
  };
  for (int numas = below(4); numas > 0; --numas) inner.push_back(add(NodeKind::kNuma, 0));
  for (int bridges = below(6); bridges > 0; --bridges) {
    inner.push_back(add(NodeKind::kBridge, inner[static_cast<std::size_t>(below(inner.size()))]));
  }
  const int nvswitch = below(8) == 0 ? add(NodeKind::kNvSwitch, 0) : -1;
  std::vector<int> nodes;
  for (int i = 0; i < gpus; ++i) {
    nodes.push_back(add(NodeKind::kGpu, inner[static_cast<std::size_t>(below(inner.size()))]));
    graph.nodes.back().index = i;
  }
  const auto link = [&](int a, int b, LinkKind kind) {
    graph.links.push_back({std::min(a, b), std::max(a, b), kind, below(4), bandwidth()});
  };
  const std::size_t density = 1 + random() % 6;
  for (const int a : nodes) {
    for (const int b : nodes) {
      if (a < b && random() % density == 0) link(a, b, LinkKind::kXgmi);
      if (a < b && random() % 32 == 0) link(a, b, LinkKind::kNvLink);
    }
    if (nvswitch >= 0 && below(8) > 0) link(nvswitch, a, LinkKind::kNvLink);
    if (below(8) == 0) link(graph.at(a).parent, a, LinkKind::kC2C);
    if (below(8) == 0) link(0, a, LinkKind::kC2C);
  }
  normalize(graph);
  return graph;
}

void check_rings_of_random_machines(unsigned first_seed, unsigned seeds) {
  for (unsigned seed = first_seed; seed < first_seed + seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Graph graph = random_machine(seed, 2 + static_cast<int>(seed % 11));
    std::vector<int> gpus = graph.all(NodeKind::kGpu);
    const std::vector<Ring> rings = find_rings(graph, gpus);
    EXPECT_GE(check_rings(graph, rings), 1);
    // The order of the question does not matter.
    std::reverse(gpus.begin(), gpus.end());
    const std::vector<Ring> again = find_rings(graph, gpus);
    ASSERT_EQ(again.size(), rings.size());
    for (std::size_t i = 0; i < rings.size(); ++i) {
      EXPECT_EQ(again[i].order, rings[i].order);
      EXPECT_EQ(again[i].bandwidth, rings[i].bandwidth);
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Rings, NeverCarryMoreThanAMachineCan) { check_rings_of_random_machines(0, 40); }
TEST(RingsFull, NeverCarryMoreThanAMachineCan) { check_rings_of_random_machines(40, 160); }

TEST(Rings, OfVeryManyGpusEndInTime) {
  const Graph graph = random_machine(1, 128);
  EXPECT_GE(check_rings(graph, find_rings(graph, graph.all(NodeKind::kGpu))), 1);
}

TEST(Routes, AreThoseOfPaths) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Graph graph = random_machine(seed, 8);
    const std::vector<int> gpus = graph.all(NodeKind::kGpu);
    const Routes routes(graph, gpus);
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      for (std::size_t j = 0; j < gpus.size(); ++j) {
        if (i == j) continue;
        const Path path = find_path(graph, gpus[i], gpus[j]);
        EXPECT_EQ(routes.over_links(i, j), path.path_class == PathClass::kLink);
        double narrowest = 0;
        for (const std::size_t part : routes.between(i, j)) {
          const double capacity = routes.parts()[part].gb_per_s;
          narrowest = narrowest == 0 ? capacity : std::min(narrowest, capacity);
        }
        EXPECT_EQ(narrowest, path.bandwidth.gb_per_s) << i << " to " << j;
      }
    }
  }
}

} // namespace
} // namespace whorl::topology
