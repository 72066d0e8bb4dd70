// Tests of the parts of a machine that hold a process, and of its NIC.
#include "topology/placement.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "machines.h"
#include "topology/ports.h"

namespace whorl::topology {
namespace {

CpuSet cpus(const char* mask) { return *CpuSet::parse_mask(mask); }

/// Returns two packages of two NUMA nodes with four processing units each, of which two share a
/// cache; a NIC of 25 GB/s is at NUMA node 2.
Graph machine() {
  Graph graph;
  graph.nodes.push_back({.kind = NodeKind::kMachine, .cpus = cpus("ffff")});
  const auto add = [&](Node node) {
    graph.nodes.push_back(std::move(node));
    return static_cast<int>(graph.nodes.size()) - 1;
  };
  for (unsigned package = 0; package < 2; ++package) {
    const int socket =
        add({.kind = NodeKind::kPackage, .parent = 0, .index = static_cast<int>(package)});
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned number = 2 * package + half;
      const int numa =
          add({.kind = NodeKind::kNuma, .parent = socket, .index = static_cast<int>(number)});
      for (unsigned pair = 0; pair < 2; ++pair) {
        const int cache = add({.kind = NodeKind::kCache,
                               .parent = numa,
                               .index = static_cast<int>(2 * number + pair)});
        for (unsigned cpu = 4 * number + 2 * pair; cpu < 4 * number + 2 * pair + 2; ++cpu) {
          for (const int part : {socket, numa, cache}) graph.at(part).cpus.add(cpu);
        }
      }
      if (number != 2) continue;
      const int bridge = add({.kind = NodeKind::kHostBridge, .parent = numa});
      add({.kind = NodeKind::kNic, .parent = bridge, .name = "slow", .up = {1, Origin::kReported}});
      add({.kind = NodeKind::kNic,
           .parent = bridge,
           .name = "fast",
           .up = {25, Origin::kReported}});
      Node broken{.kind = NodeKind::kNic,
                  .parent = bridge,
                  .name = "broken",
                  .up = {50, Origin::kReported}};
      broken.down = true;
      add(std::move(broken));
    }
  }
  normalize(graph);
  return graph;
}

/// Returns hwloc's XML of two packages of two NUMA nodes with one core each; the first node of each
/// package has a NIC of 100 Gbit/s.
std::string two_nodes_each() {
  const auto nic = [](int number) {
    const std::string bus = number == 0 ? "10" : "80";
    return "<object type=\"Bridge\" gp_index=\"5" + bus +
           "\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[" + bus + "-" + bus +
           "]\"><object type=\"PCIDev\" gp_index=\"6" + bus + "\" pci_busid=\"0000:" + bus +
           ":00.0\" pci_type=\"0207 [15b3:1021] [15b3:0055] 00\" pci_link_speed=\"31.5\">" +
           "<object type=\"OSDev\" gp_index=\"7" + bus + "\" name=\"mlx5_" +
           std::to_string(number) + "\" osdev_type=\"3\"><info name=\"Port1State\" value=\"4\"/>" +
           "</object></object></object>";
  };
  const auto node = [&](int index) {
    const std::string mask = std::to_string(1 << index), number = std::to_string(index);
    return "<object type=\"Group\" cpuset=\"0x" + mask + "\" gp_index=\"2" + number +
           "\"><object type=\"NUMANode\" os_index=\"" + number + "\" cpuset=\"0x" + mask +
           "\" gp_index=\"3" + number + "\"/><object type=\"Core\" os_index=\"" + number +
           "\" cpuset=\"0x" + mask + "\" gp_index=\"4" + number + "\"/>" +
           (index % 2 == 0 ? nic(index / 2) : "") + "</object>";
  };
  const auto package = [&](int index) {
    return "<object type=\"Package\" os_index=\"" + std::to_string(index) + "\" cpuset=\"0x" +
           (index == 0 ? "3" : "c") + "\" gp_index=\"1" + std::to_string(index) + "\">" +
           node(2 * index) + node(2 * index + 1) + "</object>";
  };
  return "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0xf\" gp_index=\"1\">" +
         package(0) + package(1) + "</object></topology>";
}

TEST(Placement, PrefersANicOfTheSamePackage) {
  const Graph graph = read_machine(two_nodes_each());
  using Names = std::vector<std::string>;
  EXPECT_EQ(find_near_rdma(graph, cpus("1")), Names{"mlx5_0"});
  EXPECT_EQ(find_near_rdma(graph, cpus("2")), Names{"mlx5_0"});
  EXPECT_EQ(find_near_rdma(graph, cpus("8")), Names{"mlx5_1"});
  EXPECT_EQ(find_near_rdma(graph, cpus("f")), (Names{"mlx5_0", "mlx5_1"}));
}

TEST(Placement, IsThePartThatHoldsAllProcessingUnits) {
  const Graph graph = machine();
  EXPECT_EQ(find_placement(graph, cpus("1")), (Placement{.package = 0, .numa = 0, .cache = 0}));
  EXPECT_EQ(find_placement(graph, cpus("c000")), (Placement{.package = 1, .numa = 3, .cache = 7}));
  EXPECT_EQ(find_placement(graph, cpus("6")), (Placement{.package = 0, .numa = 0, .cache = -1}));
  EXPECT_EQ(find_placement(graph, cpus("18")), (Placement{.package = 0, .numa = -1, .cache = -1}));
  EXPECT_EQ(find_placement(graph, cpus("180")), Placement{});
  EXPECT_EQ(find_placement(graph, cpus("ffff")), Placement{});
  EXPECT_EQ(find_placement(graph, {}), Placement{}) << "nothing is known of the process";
  EXPECT_EQ(find_placement(graph, cpus("10001")), Placement{}) << "the machine has no such unit";
  EXPECT_EQ(find_placement({}, cpus("1")), Placement{});
}

TEST(Placement, NicIsTheFastestOfTheNearestThatHaveALink) {
  const Graph graph = machine();
  for (const char* mask : {"1", "300", "ffff"}) {
    EXPECT_EQ(find_near_nic(graph, cpus(mask)).numa, 2) << mask;
    EXPECT_EQ(find_near_nic(graph, cpus(mask)).rate.gb_per_s, 25) << mask;
  }
  const Graph none = read_machine(nccl_machine(0, {}));
  EXPECT_FALSE(find_near_nic(none, cpus("1")).rate.known());
  EXPECT_EQ(find_near_nic(none, cpus("1")).numa, -1);
}

TEST(InterfaceFacts, AreThoseOfHardwareOnly) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "whorl_interfaces";
  const auto write = [&](const char* name, const char* text) {
    std::filesystem::create_directories((root / "class/net" / name).parent_path());
    std::ofstream(root / "class/net" / name) << text << "\n";
  };
  write("eth0/speed", "25000");
  write("eth0/device/numa_node", "1");
  write("eth1/speed", "-1");
  write("eth1/device/numa_node", "-1");
  write("veth0/speed", "10000");
  write("bond0/speed", "50000");
  write("bond0/bonding/mode", "802.3ad 4");
  EXPECT_DOUBLE_EQ(interface_facts("eth0", root).rate.gb_per_s, 3.125);
  EXPECT_EQ(interface_facts("eth0", root).numa, 1);
  EXPECT_FALSE(interface_facts("eth1", root).rate.known());
  EXPECT_EQ(interface_facts("eth1", root).numa, -1);
  EXPECT_FALSE(interface_facts("veth0", root).rate.known());
  EXPECT_DOUBLE_EQ(interface_facts("bond0", root).rate.gb_per_s, 6.25);
  for (const char* name : {"none", ""}) EXPECT_FALSE(interface_facts(name, root).rate.known());
  std::filesystem::remove_all(root);
}

} // namespace
} // namespace whorl::topology
