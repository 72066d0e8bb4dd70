// Answers about recorded machines, where their files are there: in the folder that
// WHORL_TOPOLOGY_FILES names, or in ../shared/data/topology beside the project.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <pugixml.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "machines.h"
#include "topology/binding.h"
#include "topology/bound.h"
#include "topology/check.h"
#include "topology/diff.h"
#include "topology/json.h"
#include "topology/paths.h"
#include "topology/rings.h"
#include "topology/svg.h"
#include "topology/text.h"

namespace whorl::topology {
namespace {

std::filesystem::path folder() {
  if (const char* const named = std::getenv("WHORL_TOPOLOGY_FILES")) return named;
  const char* const root = std::getenv("WHORL_SOURCE_ROOT");
  return std::filesystem::path(root == nullptr ? "." : root) / "../shared/data/topology";
}

std::vector<std::filesystem::path> files() {
  std::vector<std::filesystem::path> found;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(folder(), missing)) {
    if (entry.path().extension() == ".xml") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// What a machine has.
struct Answer {
  std::size_t gpus = 0, nics = 0, numas = 0;
  int rings = 0;       ///< together with their copies
  double gb_per_s = 0; ///< of all rings together; 0: unknown
  RingWay way;         ///< of all rings; kMixed if they differ
  const char* first;   ///< class of the path from GPU 0 to GPU 1
  const char* nearest; ///< class of the path from GPU 0 to its nearest NICs
  std::size_t nearest_nics = 0;
};

const std::map<std::string, Answer> kAnswers = {
    {"aws_p4d-24xl-topo", {8, 4, 2, 1, 10.0, RingWay::kTree, "PIX", "PIX", 1}},
    {"azure_ncv4-topo", {4, 1, 4, 1, 16.0, RingWay::kTree, "SYS", "PHB", 1}},
    {"azure_ndv4-topo", {8, 8, 4, 1, 16.0, RingWay::kTree, "PIX", "PIX", 2}},
    {"hwloc_nvidiaDGX2_v2", {16, 0, 2, 6, 150.0, RingWay::kLinks, "NV6", "", 0}},
    {"hwloc_power8gpudistances_v2", {4, 0, 2, 1, 32.0, RingWay::kMixed, "NV2", "", 0}},
    {"nixl_c5n.18xl-topo", {0, 2, 2, 0, 0.0, RingWay::kTree, "", "", 0}},
    {"nixl_g5.48xl-topo", {8, 2, 2, 1, 0.0, RingWay::kTree, "PHB", "PHB", 1}},
    {"nixl_p4d.24xl-topo", {8, 8, 2, 1, 31.5, RingWay::kTree, "PHB", "PHB", 1}},
    {"nixl_p5.48xl-topo",
     {8, 64, 2, 1, 15.8, RingWay::kTree, "NODE", "PIX", 4}}, // four EFA ports for each H100
    {"pmix_intel-4gpu", {4, 0, 2, 1, 63.0, RingWay::kTree, "NODE", "", 0}},
    {"pmix_nvml-4gpu",
     {4, 7, 8, 18, 450.0, RingWay::kLinks, "NV6", "PXB", 1}}, // a ConnectX-7 for each H200
    {"pmix_opa-hfi", {0, 2, 1, 0, 0.0, RingWay::kTree, "", "", 0}},
    {"rccl_topo_16p1h", {16, 8, 4, 7, 315.8, RingWay::kMixed, "XGMI4", "PXB", 1}},
    {"rccl_topo_3p_pcie_1", {3, 1, 2, 1, 16.0, RingWay::kTree, "SYS", "SYS", 1}},
    {"rccl_topo_4p2h", {8, 1, 1, 1, 15.8, RingWay::kMixed, "XGMI1", "PXB", 1}},
    {"rccl_topo_4p3l", {4, 2, 1, 6, 138.0, RingWay::kLinks, "XGMI1", "PHB", 1}},
    {"rccl_topo_4p3l_n2", {8, 1, 4, 3, 79.0, RingWay::kMixed, "SYS", "SYS", 1}},
    {"rccl_topo_4p4h", {16, 16, 1, 2, 31.5, RingWay::kMixed, "PXB", "PIX", 1}},
    {"rccl_topo_8p1h_1", {8, 4, 2, 6, 231.5, RingWay::kMixed, "XGMI4", "PXB", 1}},
    {"rccl_topo_8p1h_4", {8, 8, 2, 6, 231.5, RingWay::kMixed, "XGMI4", "PXB", 2}},
    {"rccl_topo_8p6l", {8, 1, 2, 6, 276.0, RingWay::kLinks, "XGMI1", "SYS", 1}},
    {"rccl_topo_8p6l_3nic", {8, 3, 2, 6, 276.0, RingWay::kLinks, "XGMI1", "PHB", 2}},
    {"rccl_topo_8p6l_6nic", {8, 6, 2, 6, 276.0, RingWay::kLinks, "XGMI1", "PHB", 3}},
    {"rccl_topo_8p_90a_1", {8, 1, 3, 13, 158.0, RingWay::kMixed, "XGMI1", "PHB", 1}},
    {"rccl_topo_8p_pcie", {8, 1, 1, 1, 15.8, RingWay::kTree, "PXB", "PXB", 1}},
    {"rccl_topo_8p_rome", {8, 1, 2, 3, 77.5, RingWay::kMixed, "XGMI1", "SYS", 1}},
    {"rccl_topo_8p_rome_4nics", {8, 4, 4, 2, 32.0, RingWay::kMixed, "XGMI1", "PXB", 1}},
    {"rccl_topo_8p_rome_n2_2", {8, 2, 4, 3, 77.5, RingWay::kMixed, "XGMI1", "SYS", 1}},
    {"rccl_topo_8p_rome_pcie", {8, 2, 2, 1, 16.0, RingWay::kTree, "PHB", "SYS", 2}},
    {"rccl_topo_8p_ts1_1", {8, 2, 4, 4, 92.0, RingWay::kMixed, "SYS", "PHB", 1}},
    {"rccl_topo_8p_ts1_n4_2", {8, 3, 8, 4, 63.0, RingWay::kMixed, "SYS", "SYS", 2}},
};

TEST(Recorded, HasTheKnownAnswers) {
  if (files().empty()) GTEST_SKIP() << "there are no recorded machines in " << folder();
  for (const auto& path : files()) {
    SCOPED_TRACE(path.filename());
    const Graph graph = read_machine(text_of(path));
    const auto known = kAnswers.find(path.stem());
    if (known == kAnswers.end()) continue;
    const Answer& answer = known->second;
    const std::vector<int> gpus = graph.all(NodeKind::kGpu);
    EXPECT_EQ(gpus.size(), answer.gpus);
    EXPECT_EQ(graph.all(NodeKind::kNic).size(), answer.nics);
    EXPECT_EQ(graph.all(NodeKind::kNuma).size(), answer.numas);
    if (gpus.size() < 2) continue;
    EXPECT_EQ(name_of(find_path(graph, gpus[0], gpus[1])), answer.first);
    const std::vector<int> nics = nearest_nics(graph, gpus[0]);
    EXPECT_EQ(nics.empty() ? "" : name_of(find_path(graph, gpus[0], nics[0])), answer.nearest);
    EXPECT_EQ(nics.size(), answer.nearest_nics);
    const std::vector<Ring> rings = find_rings(graph, gpus);
    EXPECT_EQ(check_rings(graph, rings), answer.rings);
    EXPECT_NEAR(sum_of(rings), answer.gb_per_s, 0.05);
    for (const Ring& ring : rings) {
      EXPECT_TRUE(ring.way == answer.way || answer.way == RingWay::kMixed);
    }
    // All rings leave every set of GPUs.
    const double cut = find_bound(graph, gpus, Collective::kBroadcast).bus_gb_per_s;
    EXPECT_LE(sum_of(rings), cut == 0 ? 0 : cut * 1.00001);
  }
}

TEST(Recorded, DoesNotDependOnTheOrderOfElements) {
  if (files().empty()) GTEST_SKIP() << "there are no recorded machines in " << folder();
  for (const auto& path : files()) {
    SCOPED_TRACE(path.filename());
    const std::string text = text_of(path);
    if (text.find("<system") == std::string::npos) continue; // matrices have an order
    Graph graph = read_machine(text);
    graph.notes.clear();
    for (unsigned seed = 0; seed < 3; ++seed) {
      Graph other = read_machine(shuffled(text, seed));
      other.notes.clear();
      EXPECT_EQ(other, graph);
    }
  }
}

TEST(Recorded, IsReadAsItIsWritten) {
  if (files().empty()) GTEST_SKIP() << "there are no recorded machines in " << folder();
  for (const auto& path : files()) {
    SCOPED_TRACE(path.filename());
    expect_kept(read_machine(text_of(path)));
  }
}

TEST(Recorded, CanBeShown) {
  if (files().empty()) GTEST_SKIP() << "there are no recorded machines in " << folder();
  for (const auto& path : files()) {
    SCOPED_TRACE(path.filename());
    const Graph graph = read_machine(text_of(path));
    EXPECT_FALSE(to_tree(graph).empty());
    EXPECT_FALSE(to_json(graph).empty());
    const std::vector<int> gpus = graph.all(NodeKind::kGpu);
    if (gpus.size() < 2) continue;
    // What is sent to all can be no faster than what is sent to one.
    EXPECT_LE(find_bound(graph, gpus, Collective::kAllToAll).bus_gb_per_s,
              find_bound(graph, gpus, Collective::kSend).bus_gb_per_s * 1.001);
  }
}

TEST(Recorded, CanBeDrawn) {
  if (files().empty()) GTEST_SKIP() << "there are no recorded machines in " << folder();
  for (const auto& path : files()) {
    SCOPED_TRACE(path.filename());
    const Graph graph = read_machine(text_of(path));
    const std::string svg = to_svg(graph);
    pugi::xml_document document;
    EXPECT_TRUE(document.load_string(svg.c_str()));
    // Each GPU is in one box.
    for (const int node : graph.all(NodeKind::kGpu)) {
      const std::string title = ">" + label(graph, node) + "  " + graph.at(node).bus_id + "</text>";
      EXPECT_NE(svg.find(title), std::string::npos) << title;
      EXPECT_EQ(svg.find(title), svg.rfind(title)) << title;
    }
  }
}

TEST(Recorded, DiffersFromOthersOnly) {
  if (files().empty()) GTEST_SKIP() << "there are no recorded machines in " << folder();
  Graph before;
  for (const auto& path : files()) {
    SCOPED_TRACE(path.filename());
    const Graph graph = read_machine(text_of(path));
    const std::vector<std::string> differences = diff(graph, graph, "a", "b");
    EXPECT_TRUE(differences.empty()) << differences.front();
    EXPECT_TRUE(before.nodes.empty() || !diff(before, graph, "a", "b").empty());
    before = graph;
  }
}

/// Parts of the findings about machines that have some.
const std::map<std::string, std::vector<std::string>> kFindings = {
    {"aws_p4d-24xl-topo", {"No links beside PCI are described"}},
    {"azure_ncv4-topo", {"GPU3 have links beside PCI whose other ends are not shown"}},
    {"nixl_c5n.18xl-topo", {"at none of the 2 NUMA nodes"}},
    {"nixl_g5.48xl-topo", {"at none of the 2 NUMA nodes"}},
    {"nixl_p4d.24xl-topo", {"No links beside PCI are described"}},
    {"nixl_p5.48xl-topo", {"No links beside PCI are described"}},
    {"pmix_intel-4gpu", {"No links beside PCI are described"}},
    {"pmix_nvml-4gpu",
     {"NIC0 (mlx5_0) at 0000:03:00.0 has no link", "NIC1 (mlx5_3) at 0000:13:00.0 has no link"}},
    {"rccl_topo_4p4h", {"25.0 GB/s each, and the PCI link of the card only 15.8 GB/s"}},
    {"rccl_topo_8p_rome_pcie", {"12.5 GB/s each, and the PCI link of the card only 3.9 GB/s"}},
};

TEST(Recorded, HasTheKnownFaults) {
  if (files().empty()) GTEST_SKIP() << "there are no recorded machines in " << folder();
  for (const auto& path : files()) {
    SCOPED_TRACE(path.filename());
    const std::vector<std::string> findings = check(read_machine(text_of(path)));
    if (!kAnswers.contains(path.stem())) continue;
    const auto known = kFindings.find(path.stem());
    const auto expected = known == kFindings.end() ? std::vector<std::string>() : known->second;
    ASSERT_EQ(findings.size(), expected.size()) << (findings.empty() ? "" : findings.front());
    for (std::size_t i = 0; i < findings.size(); ++i) {
      EXPECT_NE(findings[i].find(expected[i]), std::string::npos) << findings[i];
    }
  }
}

TEST(Recorded, HasPlacesForRanks) {
  if (files().empty()) GTEST_SKIP() << "there are no recorded machines in " << folder();
  for (const auto& path : files()) {
    const Graph graph = read_machine(text_of(path));
    for (const int ranks : {1, 3, 8}) {
      SCOPED_TRACE(testing::Message() << path.filename() << ", " << ranks << " ranks");
      const std::vector<Binding> bindings = bind_ranks(graph, ranks);
      ASSERT_EQ(bindings.size(), static_cast<std::size_t>(ranks));
      const bool enough = graph.at(0).cpus.count() >= bindings.size();
      CpuSet taken;
      for (const Binding& it : bindings) {
        EXPECT_FALSE(it.cpus.empty());
        EXPECT_EQ(it.cores, bindings.front().cores);
        EXPECT_TRUE(!enough || !it.cpus.intersects(taken)) << it.cpus.ranges();
        EXPECT_TRUE(graph.at(0).cpus.includes(it.cpus));
        taken |= it.cpus;
      }
    }
  }
}

} // namespace
} // namespace whorl::topology
