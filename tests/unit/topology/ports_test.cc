#include "topology/ports.h"

#include <gtest/gtest.h>

#include <string_view>

#include "sysfs.h"

namespace whorl::topology {
namespace {

/// Returns a machine with an InfiniBand NIC and an Ethernet NIC.
Graph two_nics() {
  Graph graph;
  graph.nodes.push_back({.kind = NodeKind::kMachine});
  graph.nodes.push_back({.kind = NodeKind::kNic, .parent = 0, .name = "mlx5_0"});
  graph.nodes.push_back(
      {.kind = NodeKind::kNic, .parent = 0, .name = "eth0", .net_device = "eth0"});
  normalize(graph);
  return graph;
}

const Node& named(const Graph& graph, std::string_view name) {
  for (const Node& node : graph.nodes) {
    if (node.name == name) return node;
  }
  ADD_FAILURE() << "there is no " << name;
  return graph.nodes.front();
}

TEST(Ports, HaveRatesAndStates) {
  const Sysfs sysfs;
  sysfs.write("class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)");
  sysfs.write("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  sysfs.write("class/net/eth0/speed", "10000");
  sysfs.write("class/net/eth0/operstate", "up");
  Graph graph = two_nics();
  add_port_facts(graph, sysfs.root());
  EXPECT_EQ(named(graph, "mlx5_0").up.gb_per_s, 50);
  EXPECT_TRUE(named(graph, "mlx5_0").rdma);
  EXPECT_FALSE(named(graph, "mlx5_0").down);
  EXPECT_EQ(named(graph, "eth0").up.gb_per_s, 1.25);
  EXPECT_FALSE(named(graph, "eth0").rdma);

  sysfs.write("class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
  sysfs.write("class/net/eth0/speed", "-1");
  sysfs.write("class/net/eth0/operstate", "down");
  graph = two_nics();
  add_port_facts(graph, sysfs.root());
  EXPECT_TRUE(named(graph, "mlx5_0").down);
  EXPECT_TRUE(named(graph, "eth0").down);
  EXPECT_FALSE(named(graph, "eth0").up.known());
}

TEST(Ports, OfSoftwareAreAdded) {
  const Sysfs sysfs;
  sysfs.write("class/infiniband/rxe0/ports/1/rate", "2.5 Gb/sec (1X SDR)");
  sysfs.write("class/infiniband/rxe0/ports/1/state", "4: ACTIVE");
  sysfs.write("class/infiniband/rxe0/node_guid", "0211:22ff:fe33:4455");
  Graph graph = two_nics();
  add_port_facts(graph, sysfs.root());
  EXPECT_EQ(graph.all(NodeKind::kNic).size(), 3);
  const Node& rxe = named(graph, "rxe0");
  EXPECT_EQ(rxe.parent, 0);
  EXPECT_EQ(rxe.port, 1);
  EXPECT_EQ(rxe.up.gb_per_s, 0.3125);
  EXPECT_TRUE(rxe.rdma);
}

TEST(Ports, StayAsTheyAreWithoutFiles) {
  Graph graph = two_nics();
  add_port_facts(graph, "/nonexistent");
  EXPECT_EQ(graph, two_nics());
  const Sysfs sysfs;
  sysfs.write("class/infiniband/mlx5_0/ports/1/rate", "fast");
  sysfs.write("class/infiniband/mlx5_0/ports/1/other", "");
  add_port_facts(graph, sysfs.root());
  EXPECT_FALSE(named(graph, "mlx5_0").up.known());
  EXPECT_FALSE(named(graph, "mlx5_0").down);
}

} // namespace
} // namespace whorl::topology
