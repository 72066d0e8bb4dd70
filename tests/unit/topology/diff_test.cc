#include "topology/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "machines.h"

namespace whorl::topology {
namespace {

using testing::ElementsAreArray;
using testing::IsEmpty;

/// Returns a machine of eight GPUs with six NVLinks and a NIC each.
Graph eight_gpus() { return read_machine(nccl_machine(8, cube_mesh())); }

/// Removes a node without children, and its links.
void remove(Graph& graph, int node) {
  std::erase_if(graph.links, [&](const Link& it) { return it.a == node || it.b == node; });
  graph.nodes.erase(graph.nodes.begin() + node);
  for (Node& it : graph.nodes) it.parent -= it.parent > node ? 1 : 0;
  for (Link& link : graph.links) {
    link.a -= link.a > node ? 1 : 0;
    link.b -= link.b > node ? 1 : 0;
  }
}

Node& node(Graph& graph, const std::string& bus_id) { return graph.at(graph.find_bus_id(bus_id)); }

Node& nic(Graph& graph, int index) {
  return graph.at(graph.all(NodeKind::kNic).at(static_cast<std::size_t>(index)));
}

/// Changes the number of links between two GPUs.
void set_links(Graph& graph, int a, int b, int count) {
  for (Link& link : graph.links) {
    if (link.a != gpu(graph, a) || link.b != gpu(graph, b)) continue;
    link.bandwidth.gb_per_s *= static_cast<double>(count) / link.count;
    link.count = count;
  }
  std::erase_if(graph.links, [](const Link& it) { return it.count == 0; });
}

/// Change of the second machine, and the sentences about it.
struct Case {
  const char* name;
  std::function<void(Graph&)> change;
  std::vector<std::string> sentences;
};

const Case kCases[] = {
    {"nothing", [](Graph&) {}, {}},
    {"missing GPU, and the numbers of those behind it",
     [](Graph& graph) {
       remove(graph, gpu(graph, 2));
       for (Node& it : graph.nodes) {
         if (it.kind == NodeKind::kGpu && it.index > 2) --it.index;
       }
       normalize(graph);
     },
     {"GPU2 at 0000:30:01.0 is missing on b; a has it at NUMA node 0."}},
    {"missing NIC",
     [](Graph& graph) {
       const int card = graph.find_bus_id("0000:50:02.0");
       remove(graph, card + 1);
       remove(graph, card);
       normalize(graph);
     },
     {"NIC4 (mlx5_4) at 0000:50:02.0 is missing on b; a has it at NUMA node 1."}},
    {"other bus ids",
     [](Graph& graph) {
       for (Node& it : graph.nodes) {
         if (!it.bus_id.empty()) it.bus_id.replace(0, 4, "0001");
       }
     },
     {}},
    {"missing link",
     [](Graph& graph) { set_links(graph, 0, 1, 0); },
     {"Between GPU0 and GPU1 there are 1 NVLink (~25.0 GB/s) on a and no NVLink on b."}},
    {"thinner link",
     [](Graph& graph) { set_links(graph, 0, 3, 1); },
     {"Between GPU0 and GPU3 there are 2 NVLinks (~50.0 GB/s) on a and 1 NVLink (~25.0 GB/s) on "
      "b."}},
    {"no links",
     [](Graph& graph) { graph.links.clear(); },
     {"a has links beside PCI (NVLink), and b shows none: look at its driver and fabric manager, "
      "or at what the source leaves out."}},
    {"fewer lanes of a GPU",
     [](Graph& graph) { graph.at(gpu(graph, 5)).up = pci_bandwidth(8, 8); },
     {"The PCI link of GPU5 at 0000:60:01.0 has 15.8 GB/s on a and 7.9 GB/s on b: other lanes or "
      "another generation. A GPU lowers the speed of an idle link, so look again while it works."}},
    {"PCI link of unknown speed", [](Graph& graph) { graph.at(gpu(graph, 5)).up = {}; }, {}},
    {"fewer lanes of a card",
     [](Graph& graph) { node(graph, "0000:60:02.0").up = pci_bandwidth(5, 16); },
     {"The PCI link of NIC5 (mlx5_5) at 0000:60:02.0 has 15.8 GB/s on a and 8.0 GB/s on b: other "
      "lanes or another generation."}},
    {"fewer lanes of a switch",
     [](Graph& graph) { node(graph, "0000:20:00.0").up = pci_bandwidth(8, 4); },
     {"The PCI link of the switch above GPU1 upwards has 15.8 GB/s on a and 3.9 GB/s on b: other "
      "lanes or another generation."}},
    {"port without a link",
     [](Graph& graph) { nic(graph, 3).down = true; },
     {"The port of NIC3 (mlx5_3) at 0000:40:02.0 is up on a and down on b."}},
    {"other rate",
     [](Graph& graph) { nic(graph, 3).up = network_bandwidth(200'000); },
     {"The rate of NIC3 (mlx5_3) at 0000:40:02.0 is 12.5 GB/s on a and 25.0 GB/s on b."}},
    {"no RDMA",
     [](Graph& graph) { nic(graph, 3).rdma = false; },
     {"NIC3 (mlx5_3) at 0000:40:02.0 does RDMA on a and does not on b: look at the driver."}},
    {"card at another switch",
     [](Graph& graph) {
       node(graph, "0000:10:02.0").parent = graph.find_bus_id("0000:20:00.0");
       normalize(graph);
     },
     {"NIC0 (mlx5_0) at 0000:10:02.0 is below switch 0000:10:00.0 on a, with GPU0, and below "
      "switch 0000:20:00.0 on b."}},
    {"switch at another NUMA node",
     [](Graph& graph) {
       node(graph, "0000:40:00.0").parent = graph.all(NodeKind::kNuma).back();
       normalize(graph);
     },
     {"GPU3 at 0000:40:01.0 is at NUMA node 0 on a and at NUMA node 1 on b.",
      "NIC3 (mlx5_3) at 0000:40:02.0 is at NUMA node 0 on a and at NUMA node 1 on b."}},
    {"other GPU",
     [](Graph& graph) {
       for (int i = 0; i < 8; ++i) graph.at(gpu(graph, i)).model = i == 6 ? "A" : "B";
     },
     {}}, // the first machine does not tell its models
    {"hidden links",
     [](Graph& graph) { graph.at(gpu(graph, 1)).hidden_links = 4; },
     {"GPU1 at 0000:20:01.0 has 0 links whose other end is hidden on a and 4 on b."}},
};

TEST(Diff, NamesWhatDiffers) {
  for (const Case& it : kCases) {
    SCOPED_TRACE(it.name);
    const Graph a = eight_gpus();
    Graph b = eight_gpus();
    it.change(b);
    EXPECT_THAT(diff(a, b, "a", "b"), ElementsAreArray(it.sentences));
    EXPECT_EQ(diff(b, a, "b", "a").size(), it.sentences.size());
    EXPECT_THAT(diff(b, b, "b", "again"), IsEmpty());
  }
}

TEST(Diff, ComparesProcessors) {
  const Graph a = processors({.packages = 2, .cores = 4});
  EXPECT_THAT(diff(a, processors({.packages = 2, .cores = 3}), "a", "b"),
              testing::ElementsAre("The number of cores is 8 on a and 6 on b.",
                                   "The number of CPUs is 8 on a and 6 on b.",
                                   "NUMA node 0 has 4 CPUs on a and 3 on b.",
                                   "NUMA node 1 has 4 CPUs on a and 3 on b."));
  Graph b = a;
  for (Node& it : b.nodes) it.model = it.kind == NodeKind::kPackage ? "EPYC" : "";
  EXPECT_THAT(diff(a, b, "a", "b"), IsEmpty());
  Graph c = b;
  c.at(c.all(NodeKind::kPackage).back()).model = "Xeon";
  EXPECT_THAT(diff(b, c, "b", "c"), testing::ElementsAre("The processor of package 1 is EPYC on b "
                                                         "and Xeon on c."));
}

TEST(Diff, ComparesLinksToSwitches) {
  const auto machine = [](int links) {
    Graph graph;
    graph.nodes = {{.kind = NodeKind::kMachine},
                   {.kind = NodeKind::kGpu, .parent = 0, .bus_id = "0000:01:00.0"},
                   {.kind = NodeKind::kGpu, .parent = 0, .bus_id = "0000:02:00.0"},
                   {.kind = NodeKind::kNvSwitch, .parent = 0, .bus_id = "0000:03:00.0"}};
    graph.links = {{.a = 1, .b = 3, .count = 18}, {.a = 2, .b = 3, .count = links}};
    normalize(graph);
    return graph;
  };
  EXPECT_THAT(diff(machine(18), machine(17), "a", "b"),
              testing::ElementsAre("Between GPU1 and NVSwitches there are 18 NVLinks (? GB/s) on a "
                                   "and 17 NVLinks (? GB/s) on b."));
}

} // namespace
} // namespace whorl::topology
