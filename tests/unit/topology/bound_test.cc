#include "topology/bound.h"

#include <gtest/gtest.h>

#include "machines.h"
#include "topology/flow.h"

namespace whorl::topology {
namespace {

TEST(FlowNetwork, FindsTheMaximum) {
  // The example of Cormen, Leiserson, Rivest and Stein, Introduction to Algorithms, section 26.2.
  FlowNetwork network(6);
  network.add_edge(0, 1, 16);
  network.add_edge(0, 2, 13);
  network.add_edge(1, 3, 12);
  network.add_edge(2, 1, 4);
  network.add_edge(2, 4, 14);
  network.add_edge(3, 2, 9);
  network.add_edge(3, 5, 20);
  network.add_edge(4, 3, 7);
  network.add_edge(4, 5, 4);
  EXPECT_DOUBLE_EQ(network.max_flow(0, 5), 23);
  EXPECT_EQ(network.source_side(0), (std::vector<bool>{true, true, true, false, true, false}));
  EXPECT_EQ(network.max_flow(5, 0), 0);
}

TEST(FlowNetwork, HasUnlimitedEdges) {
  FlowNetwork network(3);
  network.add_edge(0, 1, FlowNetwork::kUnlimited);
  const std::size_t edge = network.add_edge(1, 2, 5);
  EXPECT_DOUBLE_EQ(network.max_flow(0, 2), 5);
  network.set_capacity(edge, FlowNetwork::kUnlimited);
  EXPECT_EQ(network.max_flow(0, 2), FlowNetwork::kUnlimited);
}

double bus(const Graph& graph, Collective collective) {
  return find_bound(graph, graph.all(NodeKind::kGpu), collective).bus_gb_per_s;
}

TEST(Bound, OfASwitch) {
  // Eight GPUs with 600 GB/s each to one switch, and nothing else whose bandwidth is known.
  Graph graph;
  graph.nodes.push_back({.kind = NodeKind::kMachine});
  graph.nodes.push_back({.kind = NodeKind::kNvSwitch, .parent = 0, .bus_id = "0000:01:00.0"});
  for (int i = 0; i < 8; ++i) {
    graph.nodes.push_back({.kind = NodeKind::kGpu,
                           .parent = 1,
                           .index = i,
                           .up = {.gb_per_s = 600, .origin = Origin::kReported}});
  }
  normalize(graph);
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
        Collective::kBroadcast, Collective::kReduce, Collective::kAllToAll, Collective::kGather}) {
    EXPECT_NEAR(bus(graph, collective), 600, 1e-3) << name_of(collective);
  }
}

TEST(Bound, KeepsWhatIsKnownBesideUnknownLinks) {
  // Two GPUs at each of two processors; how fast the links of a pair are is unknown.
  Graph graph;
  graph.nodes.push_back({.kind = NodeKind::kMachine});
  for (int numa = 0; numa < 2; ++numa) {
    const int parent = static_cast<int>(graph.nodes.size());
    graph.nodes.push_back({.kind = NodeKind::kNuma,
                           .parent = 0,
                           .index = numa,
                           .up = {.gb_per_s = 10, .origin = Origin::kReported}});
    for (int i = 1; i <= 2; ++i) {
      graph.nodes.push_back({.kind = NodeKind::kGpu, .parent = parent, .index = 2 * numa + i - 1});
    }
    graph.links.push_back({.a = parent + 1, .b = parent + 2, .count = 1});
  }
  normalize(graph);
  EXPECT_NEAR(bus(graph, Collective::kAllGather), 15, 1e-6); // half of the vector crosses
  EXPECT_NEAR(bus(graph, Collective::kGather), 15, 1e-6);
}

TEST(Bound, OfManyDevicesAndProcessorsTakesLittleTime) {
  // 64 GPUs that are all linked, as partitions of GPUs are, beside so many cores that each flow
  // through all of them would take milliseconds, and all flows longer than this test may take.
  Graph graph;
  graph.nodes.push_back({.kind = NodeKind::kMachine});
  constexpr int kGpus = 64, kCores = 200'000;
  for (int i = 0; i < kGpus; ++i) {
    graph.nodes.push_back({.kind = NodeKind::kGpu, .parent = 0, .index = i});
    for (int j = 1; j <= i; ++j) {
      graph.links.push_back({.a = j,
                             .b = i + 1,
                             .count = 1,
                             .bandwidth = {.gb_per_s = 50, .origin = Origin::kReported}});
    }
  }
  for (int i = 0; i < kCores; ++i) {
    graph.nodes.push_back({.kind = NodeKind::kCore, .parent = 0, .index = i});
  }
  for (Node& node : graph.nodes) {
    if (node.kind == NodeKind::kGpu) node.up = {.gb_per_s = 50, .origin = Origin::kReported};
  }
  std::erase_if(graph.links, [](const Link& link) { return link.a == link.b; });
  normalize(graph);
  for (const Collective collective :
       {Collective::kAllGather, Collective::kAllToAll, Collective::kSend}) {
    EXPECT_NEAR(bus(graph, collective), 64 * 50, 1e-3) << name_of(collective);
  }
}

TEST(Bound, OfTwoProcessors) {
  // 10 GB/s between the processors, 15.75 of each of four GPUs: half of the data crosses.
  const Graph graph = read_machine(nccl_machine(4, {}));
  const std::vector<int> gpus = graph.all(NodeKind::kGpu);
  const Bound gather = find_bound(graph, gpus, Collective::kAllGather);
  // 2·n/4 bytes leave two GPUs at 10 GB/s: n bytes take n/20, of which 3/4 count.
  EXPECT_NEAR(gather.bus_gb_per_s, 15, 1e-3);
  ASSERT_EQ(gather.sets.size(), 1);
  EXPECT_EQ(gather.sets.front().size(), 2);
  EXPECT_TRUE(gather.by_table);
  EXPECT_NEAR(bus(graph, Collective::kAllReduce), 15, 1e-3); // n bytes cross each way
  EXPECT_NEAR(bus(graph, Collective::kBroadcast), 10, 1e-3); // n bytes cross
  EXPECT_NEAR(bus(graph, Collective::kAllToAll), 7.5, 1e-3); // 4·n/4 bytes cross
}

TEST(Bound, OfLinks) {
  // Cube mesh: 150 GB/s out of each GPU over links, and 15.75 over PCI.
  const Graph graph = read_machine(nccl_machine(8, cube_mesh()));
  EXPECT_NEAR(bus(graph, Collective::kAllReduce), 165.75, 0.1);
  EXPECT_NEAR(bus(graph, Collective::kBroadcast), 160, 0.1); // six links between the halves, and 10
}

TEST(Bound, IsUnknownWithoutFigures) {
  Graph graph;
  graph.nodes.push_back({.kind = NodeKind::kMachine});
  for (int i = 0; i < 2; ++i)
    graph.nodes.push_back({.kind = NodeKind::kGpu, .parent = 0, .index = i});
  normalize(graph);
  for (int c = 0; c < kNumCollectives; ++c) {
    EXPECT_EQ(bus(graph, static_cast<Collective>(c)), 0) << c;
  }
}

} // namespace
} // namespace whorl::topology
