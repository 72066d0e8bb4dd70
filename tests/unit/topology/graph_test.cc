#include "topology/graph.h"

#include <gtest/gtest.h>

#include "topology/devices.h"

namespace whorl::topology {
namespace {

TEST(BusId, IsInOneForm) {
  EXPECT_EQ(normal_bus_id("0000:1A:00.0"), "0000:1a:00.0");
  EXPECT_EQ(normal_bus_id("1a:00.0"), "0000:1a:00.0");
  EXPECT_EQ(normal_bus_id("00000000:C1:00.0"), "0000:c1:00.0"); // NVML
  EXPECT_EQ(normal_bus_id("10000:01:00.0"), "10000:01:00.0");   // Intel's VMD
  EXPECT_EQ(normal_bus_id("ffff:ff:01.0"), "ffff:ff:01.0");
  for (const char* text : {"", "0", "1a.0", "x:00.0", "1a:00", "1a:00.0.0", ":00.0", "0:1:2:3.0",
                           "1a:.0", "1a:00.", "000000000000000000001a:00.0"}) {
    EXPECT_EQ(normal_bus_id(text), "") << text;
  }
}

TEST(Bandwidth, OfPciLinks) {
  EXPECT_NEAR(pci_bandwidth(2.5, 1).gb_per_s, 0.25, 1e-9);
  EXPECT_NEAR(pci_bandwidth(8, 16).gb_per_s, 15.75, 0.01);
  EXPECT_NEAR(pci_bandwidth(16, 16).gb_per_s, 31.5, 0.01);
  EXPECT_NEAR(pci_bandwidth(32, 16).gb_per_s, 63.0, 0.1);
  for (const Bandwidth& unknown :
       {pci_bandwidth(0, 16), pci_bandwidth(16, 0), pci_bandwidth(16, 64), pci_bandwidth(-8, 16),
        pci_bandwidth(7, 16)}) {
    EXPECT_FALSE(unknown.known());
    EXPECT_EQ(unknown, Bandwidth());
  }
}

TEST(Devices, AreToldByClassAndVendor) {
  EXPECT_EQ(device_kind(0x030200, 0x10de, 0x2335), DeviceKind::kGpu);
  EXPECT_EQ(device_kind(0x038000, 0x1002, 0x740c), DeviceKind::kGpu);
  EXPECT_EQ(device_kind(0x120000, 0x1002, 0x74a1), DeviceKind::kGpu);
  EXPECT_EQ(device_kind(0x030000, 0x1a03, 0x2000), DeviceKind::kOther); // a server's console
  EXPECT_EQ(device_kind(0x020000, 0x1d0f, 0xefa1), DeviceKind::kNic);
  EXPECT_EQ(device_kind(0x068000, 0x10de, 0x22a3), DeviceKind::kNvSwitch);
  EXPECT_EQ(device_kind(0x060400, 0, 0), DeviceKind::kBridge);
  EXPECT_EQ(device_kind(0x010802, 0x144d, 0), DeviceKind::kOther);
  EXPECT_TRUE(always_rdma(0x020000, 0x1d0f, 0xefa1));  // EFA
  EXPECT_FALSE(always_rdma(0x020000, 0x1d0f, 0xec20)); // ENA
  EXPECT_TRUE(always_rdma(0x020700, 0x15b3, 0x1021));
}

/// Returns a machine of two GPUs and their NUMA nodes, with the nodes in the given order.
Graph two_gpus(bool reversed) {
  Graph graph;
  graph.nodes.push_back({.kind = NodeKind::kMachine});
  for (int i = 0; i < 2; ++i) {
    const int number = reversed ? 1 - i : i;
    graph.nodes.push_back({.kind = NodeKind::kNuma, .parent = 0, .index = number});
    graph.nodes.push_back({.kind = NodeKind::kGpu,
                           .parent = static_cast<int>(graph.nodes.size()) - 1,
                           .bus_id = number == 0 ? "0000:01:00.0" : "0000:02:00.0"});
  }
  graph.links.push_back({.a = 4, .b = 2, .count = 3});
  normalize(graph);
  return graph;
}

TEST(Graph, HasOneOrder) {
  const Graph graph = two_gpus(false);
  EXPECT_EQ(graph, two_gpus(true));
  EXPECT_EQ(graph.at(1).kind, NodeKind::kNuma);
  EXPECT_EQ(graph.at(2).kind, NodeKind::kGpu);
  EXPECT_EQ(graph.at(2).index, 0);
  EXPECT_EQ(graph.links.front().a, 2);
  EXPECT_EQ(graph.links.front().b, 4);
}

TEST(Graph, FindsWhatContains) {
  const Graph graph = two_gpus(false);
  EXPECT_EQ(graph.above(4, NodeKind::kNuma), 3);
  EXPECT_EQ(graph.above(4, NodeKind::kPackage), -1);
  EXPECT_EQ(graph.common(2, 4), 0);
  EXPECT_EQ(graph.common(1, 2), 1);
  EXPECT_EQ(graph.find_bus_id("0000:02:00.0"), 4);
  EXPECT_EQ(graph.find_bus_id(""), -1);
  EXPECT_EQ(label(graph, 4), "GPU1");
}

} // namespace
} // namespace whorl::topology
