#include "topology/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "machines.h"

namespace whorl::topology {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Returns a machine of eight GPUs with six NVLinks and a NIC each.
Graph eight_gpus() {
  Graph graph = read_machine(nccl_machine(8, cube_mesh()));
  for (Node& node : graph.nodes) { // a model
    if (node.kind == NodeKind::kGpu) node.vendor = 0x10de, node.device = 0x1db1;
    if (node.kind == NodeKind::kCard) node.vendor = 0x15b3, node.device = 0x1017;
  }
  return graph;
}

int nic(const Graph& graph, int index) {
  return graph.all(NodeKind::kNic).at(static_cast<std::size_t>(index));
}

int card(const Graph& graph, int index) { return graph.at(nic(graph, index)).parent; }

/// Fault that a test makes, and what is to be said of it.
struct Case {
  const char* name;
  std::function<void(Graph&)> break_it;
  std::vector<std::string> words; ///< parts of the only sentence; none: no sentence
};

const Case kCases[] = {
    {"healthy", [](Graph&) {}, {}},
    {"GPU with half of its lanes",
     [](Graph& graph) { graph.at(gpu(graph, 3)).up = pci_bandwidth(8, 8); },
     {"PCI link of GPU3 at 0000:40:01.0 has 7.9 GB/s", "an equal device 15.8 GB/s", "idle"}},
    {"links of Intel's GPUs that are not described",
     [](Graph& graph) {
       graph.links.clear();
       for (int i = 0; i < 8; ++i) {
         graph.at(gpu(graph, i)).vendor = 0x8086;
         graph.at(gpu(graph, i)).device = 0x0bd6;
       }
     },
     {"No links beside PCI are described, but GPU0, GPU1", "xpu-smi topology -m"}},
    {"NICs that NCCL has joined",
     [](Graph& graph) {
       graph.at(nic(graph, 0)).name = "mlx5_0+mlx5_8";
       graph.at(nic(graph, 0)).up = network_bandwidth(400'000);
     },
     {}},
    {"GPU of unknown speed", [](Graph& graph) { graph.at(gpu(graph, 3)).up = {}; }, {}},
    {"other GPU with half of the lanes",
     [](Graph& graph) {
       graph.at(gpu(graph, 3)).up = pci_bandwidth(8, 8);
       graph.at(gpu(graph, 3)).device = 0x1eb8;
     },
     {}},
    {"switch with half of its lanes",
     [](Graph& graph) { graph.at(graph.at(gpu(graph, 2)).parent).up = pci_bandwidth(8, 8); },
     {"switch 0000:30:00.0 upwards, above GPU2, has 7.9 GB/s", "15.8 GB/s above an equal device"}},
    {"switch of an idle GPU",
     [](Graph& graph) { graph.at(graph.at(gpu(graph, 2)).parent).up = pci_bandwidth(2.5, 16); },
     {}},
    {"NIC that is faster than its slot",
     [](Graph& graph) {
       for (int i = 0; i < 8; ++i) graph.at(nic(graph, i)).up = network_bandwidth(200'000);
     },
     {"NIC0 (mlx5_0), NIC1", "25.0 GB/s each, and the PCI link of the card only 15.8 GB/s"}},
    {"NIC inside a chipset",
     [](Graph& graph) {
       for (int i = 0; i < 8; ++i) graph.at(card(graph, i)).up = pci_bandwidth(2.5, 1);
     },
     {}},
    {"NIC without a link",
     [](Graph& graph) { graph.at(nic(graph, 5)).down = true; },
     {"port of NIC5 (mlx5_5) at 0000:60:02.0 has no link, and that of an equal NIC has one"}},
    {"second port of Ethernet that is not used",
     [](Graph& graph) {
       graph.nodes.push_back({.kind = NodeKind::kCard, .parent = 0, .bus_id = "0000:f0:00.1"});
       graph.nodes.push_back({.kind = NodeKind::kNic,
                              .parent = static_cast<int>(graph.nodes.size()) - 1,
                              .name = "eth1",
                              .down = true});
       graph.at(static_cast<int>(graph.nodes.size()) - 2).parent = 1; // at NUMA node 0
       normalize(graph);
     },
     {}},
    {"NIC at a lower rate",
     [](Graph& graph) { graph.at(nic(graph, 1)).up = network_bandwidth(50'000); },
     {"port of NIC1 (mlx5_1) at 0000:20:02.0 runs at 6.2 GB/s", "equal NIC at 12.5 GB/s"}},
    {"hidden links",
     [](Graph& graph) { graph.at(gpu(graph, 6)).hidden_links = 12; },
     {"GPU6 at 0000:70:01.0 has links beside PCI whose other ends are not shown"}},
    {"links that nobody describes",
     [](Graph& graph) { graph.links.clear(); },
     {"No links beside PCI are described, but GPU0, GPU1, "}},
    {"GPUs that have no links",
     [](Graph& graph) {
       graph.links.clear();
       for (Node& node : graph.nodes) {
         if (node.kind == NodeKind::kGpu) node.device = 0x1eb8;
       }
     },
     {}},
    {"devices at no NUMA node",
     [](Graph& graph) {
       graph.at(graph.at(gpu(graph, 7)).parent).parent = 0;
       normalize(graph);
     },
     {"GPU7 and NIC7 (mlx5_7) are at none of the 2 NUMA nodes"}},
};

TEST(Check, FindsOneFault) {
  for (const Case& it : kCases) {
    SCOPED_TRACE(it.name);
    Graph graph = eight_gpus();
    it.break_it(graph);
    const std::vector<std::string> findings = check(graph);
    EXPECT_EQ(findings.size(), it.words.empty() ? 0 : 1) << testing::PrintToString(findings);
    for (const std::string& words : it.words) {
      ASSERT_FALSE(findings.empty());
      EXPECT_THAT(findings.front(), HasSubstr(words));
    }
  }
}

TEST(Check, FindsMissingLinks) {
  Graph graph = eight_gpus();
  // One of two links between GPU0 and GPU3.
  for (Link& link : graph.links) {
    if (link.a != gpu(graph, 0) || link.b != gpu(graph, 3)) continue;
    link.count = 1;
    link.bandwidth.gb_per_s /= 2;
  }
  EXPECT_THAT(check(graph),
              ElementsAre(AllOf(HasSubstr("GPU0 at 0000:10:01.0 has 5 NVLinks (~125.0 GB/s)"),
                                HasSubstr("equal GPUs 6 NVLinks (~150.0 GB/s)")),
                          HasSubstr("GPU3 at 0000:40:01.0 has 5 NVLinks")));
  // All links of one GPU.
  graph = eight_gpus();
  const int lost = gpu(graph, 4);
  std::erase_if(graph.links, [&](const Link& it) { return it.a == lost || it.b == lost; });
  // GPUs at the other ends have fewer, too.
  EXPECT_THAT(check(graph), ElementsAre(HasSubstr("GPU4 at 0000:50:01.0 has no NVLink")));
}

TEST(Check, LooksForNicsNearGpus) {
  // Four cards, all at the first of two NUMA nodes.
  Graph graph = eight_gpus();
  const int numa = graph.all(NodeKind::kNuma).front();
  for (int i = 4; i < 8; ++i) graph.at(card(graph, i)).parent = numa;
  normalize(graph);
  EXPECT_THAT(check(graph), ElementsAre(AllOf(HasSubstr("GPU4, GPU5, GPU6 and GPU7 have no NIC at "
                                                        "NUMA node 1"),
                                              HasSubstr("has 8 for 2 NUMA nodes"))));
  // One card cannot be near both.
  graph = read_machine(nccl_machine(2, {}));
  for (Node& node : graph.nodes) {
    if (node.name == "mlx5_1") node.kind = NodeKind::kNvSwitch;
  }
  EXPECT_THAT(check(graph), IsEmpty());
}

TEST(Check, LooksAtTheStateOfPciDevices) {
  Graph graph = eight_gpus();
  PciStates states;
  for (const Node& node : graph.nodes) {
    if (node.kind != NodeKind::kGpu && node.kind != NodeKind::kCard) continue;
    states[node.bus_id] = {.gt_per_s = 8, .max_gt_per_s = 8, .lanes = 16, .max_lanes = 16};
  }
  EXPECT_THAT(check(graph, states), IsEmpty());
  // An idle GPU.
  states["0000:10:01.0"].gt_per_s = 2.5;
  // A card that needs no more than the lanes it has: 12.5 of 15.8 GB/s.
  states["0000:10:02.0"].max_lanes = 32;
  EXPECT_THAT(check(graph, states), IsEmpty());
  states["0000:20:01.0"].lanes = 8;
  states["0000:20:02.0"].gt_per_s = 5;
  EXPECT_THAT(
      check(graph, states),
      ElementsAre("The PCI link of GPU1 at 0000:20:01.0 has 8 lanes, and the device 16: put "
                  "the card into a slot with as many lanes, or seat it again.",
                  HasSubstr("card 0000:20:02.0 runs at 5 GT/s, and device and slot can do "
                            "8 GT/s")));
}

TEST(Check, FindsBridgesThatRedirect) {
  Graph graph;
  graph.nodes.push_back({.kind = NodeKind::kMachine});
  graph.nodes.push_back({.kind = NodeKind::kBridge,
                         .parent = 0,
                         .bus_id = "0000:01:00.0",
                         .role = BridgeRole::kRootPort});
  graph.nodes.push_back({.kind = NodeKind::kBridge,
                         .parent = 1,
                         .bus_id = "0000:02:00.0",
                         .role = BridgeRole::kDownstreamPort});
  const PciStates root = {{"0000:01:00.0", {.redirects = true}}};
  EXPECT_THAT(check(graph, root), IsEmpty()); // there is no way below it
  const PciStates port = {{"0000:02:00.0", {.redirects = true}}};
  EXPECT_THAT(check(graph, port),
              ElementsAre(HasSubstr("ACS is on at 1 port of PCI switches (0000:02:00.0)")));
}

} // namespace
} // namespace whorl::topology
