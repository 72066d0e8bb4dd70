#include "topology/svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <pugixml.hpp>
#include <string>

#include "machines.h"

namespace whorl::topology {
namespace {

using testing::HasSubstr;
using testing::Not;

std::size_t count(const std::string& svg, const std::string& words) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = svg.find(words, at)) != std::string::npos; ++at) ++found;
  return found;
}

TEST(Svg, ShowsTheParts) {
  const std::string svg = to_svg(read_machine(nccl_machine(8, cube_mesh())));
  EXPECT_EQ(svg, to_svg(read_machine(shuffled(nccl_machine(8, cube_mesh()), 1))));
  for (const char* words :
       {">NUMA node 1</text>", ">PCI switch 0000:80:00.0</text>", ">GPU7  0000:80:01.0</text>",
        ">NIC7 (mlx5_7)</text>", ">RDMA, 12.5 GB/s</text>", ">PCI 15.8 GB/s upwards</text>",
        ">2 NVLinks (~50.0 GB/s) between</text>", ">1 NVLink (~25.0 GB/s) between</text>",
        "<title>GPU0 - GPU3: 2 NVLinks (~50.0 GB/s)</title>"}) {
    EXPECT_THAT(svg, HasSubstr(words));
  }
  EXPECT_EQ(count(svg, "<path "), cube_mesh().size() + 2); // and two lines of the legend
}

TEST(Svg, FoldsWhatIsMany) {
  const std::string few = to_svg(processors({.caches = 1, .cores = 2}));
  EXPECT_THAT(few, HasSubstr(">core 1</text>"));
  const std::string many = to_svg(processors({.packages = 2, .caches = 8, .cores = 8}));
  EXPECT_EQ(count(many, ">8 cores</text>"), 16);
  EXPECT_EQ(count(many, ">core "), 0);
  const std::string more = to_svg(processors({.caches = 40, .cores = 2}));
  EXPECT_THAT(more, HasSubstr(">40 caches</text>"));
  EXPECT_THAT(to_svg(processors({.cores = 64})), HasSubstr(">64 cores</text>"));
}

TEST(Svg, OfManyCachesTakesLittleTime) { // not minutes, which the test does not have
  Graph graph;
  graph.nodes.push_back({.kind = NodeKind::kMachine});
  for (int cache = 0; cache < 50'000; ++cache) {
    const int parent = static_cast<int>(graph.nodes.size());
    graph.nodes.push_back({.kind = NodeKind::kCache, .parent = 0, .index = cache});
    graph.nodes.push_back({.kind = NodeKind::kCore, .parent = parent, .index = 2 * cache});
    graph.nodes.push_back({.kind = NodeKind::kCore, .parent = parent, .index = 2 * cache + 1});
  }
  normalize(graph);
  EXPECT_THAT(to_svg(graph), HasSubstr(">50000 caches</text>"));
}

TEST(Svg, MarksPortsThatAreDown) {
  Graph graph = read_machine(nccl_machine(2, {}));
  EXPECT_THAT(to_svg(graph), Not(HasSubstr("DOWN")));
  graph.at(graph.all(NodeKind::kNic).front()).down = true;
  EXPECT_THAT(to_svg(graph), HasSubstr(">DOWN, RDMA, 12.5 GB/s</text>"));
}

TEST(Svg, HasRoomForTheEndsOfLinks) {
  const std::string svg =
      to_svg(read_machine("<system><cpu numaid=\"10\"><pci busid=\"01:00.0\"><gpu sm=\"90\"><c2c "
                          "bw=\"45000\" count=\"10\"/></gpu></pci></cpu></system>"));
  EXPECT_EQ(count(svg, ">NUMA node 10</text>"), 2); // the part, and the end of the link
}

TEST(Svg, DrawsLongChainsOfSwitches) {
  Graph graph;
  graph.nodes.push_back({.kind = NodeKind::kMachine});
  for (int i = 0; i < 90; ++i) {
    graph.nodes.push_back({.kind = NodeKind::kBridge,
                           .parent = i,
                           .up = pci_bandwidth(16, 8),
                           .role = BridgeRole::kSwitch});
  }
  graph.nodes.push_back({.kind = NodeKind::kGpu, .parent = 90, .up = pci_bandwidth(16, 16)});
  normalize(graph);
  EXPECT_THAT(to_svg(graph), HasSubstr("PCI 15.8 GB/s via 90 sw…"));
}

TEST(Svg, IsXmlWhateverTheNames) {
  const std::string names[] = {"<script>&\"'",
                               "]]>",
                               std::string("\x01\x1b[0m\0", 6),
                               "\xff\xfe\xc0\x80",
                               "\xef\xbf\xbf",
                               "\xed\xa0\x80",
                               "Prozessor №5 — ü",
                               std::string(10'000, 'x'),
                               std::string(10'001, '\xc3')};
  for (const std::string& name : names) {
    Graph graph = read_machine(nccl_machine(2, {{0, 1, 1}}));
    for (Node& node : graph.nodes) node.name = node.model = node.net_device = name;
    const std::string svg = to_svg(graph);
    pugi::xml_document document;
    EXPECT_TRUE(document.load_string(svg.c_str(), pugi::parse_default)) << name;
    EXPECT_EQ(count(svg, "<script"), 0);
    EXPECT_TRUE(std::all_of(svg.begin(), svg.end(), [](char c) {
      return static_cast<unsigned char>(c) >= 0x20 || c == '\n';
    })) << name;
    EXPECT_EQ(count(svg, "&#"), 0) << name; // control characters in disguise
    EXPECT_EQ(count(svg, "\xff") + count(svg, "\xc0\x80") + count(svg, "\xed\xa0\x80"), 0) << name;
  }
}

} // namespace
} // namespace whorl::topology
