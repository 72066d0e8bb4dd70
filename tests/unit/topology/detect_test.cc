#include "topology/detect.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#ifdef WHORL_HAVE_HWLOC
#include <hwloc.h>
#endif

#include "machines.h"
#include "topology/hwloc_xml.h"
#include "topology/paths.h"

namespace whorl::topology {
namespace {

TEST(Detect, FindsTheProcessorsOfThisMachine) {
  for (const Detail detail : {Detail::kProcessors, Detail::kDevices}) {
    const Graph graph = detect(detail);
    ASSERT_FALSE(graph.nodes.empty());
    EXPECT_EQ(graph.at(0).kind, NodeKind::kMachine);
    EXPECT_GE(graph.all(NodeKind::kCore).size(), 1);
    for (const std::string& note : graph.notes) ADD_FAILURE() << note;
#ifdef WHORL_HAVE_HWLOC
    EXPECT_EQ(graph.source, Source::kHwloc);
    EXPECT_GE(graph.at(0).cpus.count(), 1);
#endif
  }
}

TEST(Undivided, IsAMachineWhoseProcessingUnitsShareACacheAndAMemory) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "whorl_undivided";
  const auto write = [&](const char* name, const char* text) {
    const std::filesystem::path file = root / "devices/system" / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  };
  std::filesystem::remove_all(root);
  EXPECT_FALSE(is_undivided(root)) << "nothing is known";
  write("cpu/online", "0-7");
  write("node/online", "0");
  write("cpu/cpu0/cache/index0/shared_cpu_list", "0-1");
  EXPECT_FALSE(is_undivided(root)) << "each pair has a cache";
  write("cpu/cpu0/cache/index1/shared_cpu_list", "0-3");
  EXPECT_FALSE(is_undivided(root)) << "each half has a cache";
  write("cpu/cpu0/cache/index1/shared_cpu_list", "0-7");
  EXPECT_TRUE(is_undivided(root));
  write("node/online", "0-1");
  EXPECT_FALSE(is_undivided(root)) << "two memories";
  std::filesystem::remove_all(root);
}

TEST(Undivided, AgreesWithHwloc) {
  if (!is_undivided("/sys")) GTEST_SKIP() << "this machine has several parts";
  const Graph graph = detect(Detail::kProcessors);
  for (const NodeKind kind : {NodeKind::kPackage, NodeKind::kNuma, NodeKind::kCache}) {
    EXPECT_LE(graph.all(kind).size(), 1U) << name_of(kind);
  }
}

TEST(Detect, FindsTheSameTwice) { EXPECT_EQ(detect(Detail::kDevices), detect(Detail::kDevices)); }

#ifdef WHORL_HAVE_HWLOC

/// Topology that keeps hwloc's plug-ins loaded: the leak sanitizer tells by the name of the library
/// whose memory it is (tests/support/leaks_of_others.txt).
[[maybe_unused]] const hwloc_topology_t kept = [] {
  hwloc_topology_t topology = nullptr;
  hwloc_topology_init(&topology);
  return topology;
}();

/// Returns the machine of one of hwloc's descriptions, as hwloc itself writes it.
Graph synthetic(const char* description) {
  hwloc_topology_t topology = nullptr;
  hwloc_topology_init(&topology);
  EXPECT_EQ(hwloc_topology_set_synthetic(topology, description), 0);
  EXPECT_EQ(hwloc_topology_load(topology), 0);
  char* text = nullptr;
  int size = 0;
  EXPECT_EQ(hwloc_topology_export_xmlbuffer(topology, &text, &size, 0), 0);
  const std::string xml(text);
  hwloc_free_xmlbuffer(topology, text);
  hwloc_topology_destroy(topology);
  return read_machine(xml);
}

/// Returns a machine as hwloc writes it after reading it from whorl's own XML.
Graph through_hwloc(const Graph& graph) {
  const std::string xml = write_hwloc_xml(graph);
  hwloc_topology_t topology = nullptr;
  hwloc_topology_init(&topology);
  EXPECT_EQ(hwloc_topology_set_xmlbuffer(topology, xml.c_str(), static_cast<int>(xml.size()) + 1),
            0);
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL);
  const int loaded = hwloc_topology_load(topology);
  EXPECT_EQ(loaded, 0) << xml;
  if (loaded != 0) return {};
  char* text = nullptr;
  int size = 0;
  EXPECT_EQ(hwloc_topology_export_xmlbuffer(topology, &text, &size, 0), 0);
  const std::string again(text);
  hwloc_free_xmlbuffer(topology, text);
  hwloc_topology_destroy(topology);
  return read_machine(again);
}

TEST(Detect, WritesWhatHwlocReads) {
  for (const char* description :
       {"package:2 [numa] l3:2 core:3 pu:2", "pu:2", "numa:4 core:2 pu:1"}) {
    const Graph graph = synthetic(description);
    expect_equal(through_hwloc(graph), graph);
  }
  expect_equal(through_hwloc(detect(Detail::kDevices)), detect(Detail::kDevices));
}

TEST(Detect, ReadsSyntheticMachinesOfHwloc) {
  const Graph graph = synthetic("package:2 [numa] l3:2 core:3 pu:2");
  EXPECT_EQ(graph.all(NodeKind::kPackage).size(), 2);
  EXPECT_EQ(graph.all(NodeKind::kNuma).size(), 2);
  EXPECT_EQ(graph.all(NodeKind::kCache).size(), 4);
  const std::vector<int> cores = graph.all(NodeKind::kCore);
  ASSERT_EQ(cores.size(), 12);
  EXPECT_EQ(graph.at(cores.back()).cpus.count(), 2);
  EXPECT_EQ(find_path(graph, cores[0], cores[1]).path_class, PathClass::kNode);
  EXPECT_EQ(find_path(graph, cores[0], cores[11]).path_class, PathClass::kSys);
  EXPECT_EQ(synthetic("pack:1 [numa] [numa] core:4 pu:1").all(NodeKind::kNuma).size(), 2);
  EXPECT_EQ(synthetic("group:7 [numa] pu:1").all(NodeKind::kNuma).size(), 7);
  EXPECT_EQ(synthetic("pu:4").all(NodeKind::kCore).size(), 4);
}

#endif

} // namespace
} // namespace whorl::topology
