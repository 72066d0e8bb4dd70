#include "topology/hwloc_xml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "machines.h"
#include "topology/paths.h"
#include "topology/xml.h"

namespace whorl::topology {
namespace {

using testing::HasSubstr;

/// Two packages with two cores each; below the first a switch with a GPU and a NIC, and a GPU on a
/// port of its own; on the second a GPU.
constexpr const char* kMachine = R"(<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000000f" gp_index="1">
    <info name="HostName" value="one"/>
    <object type="Package" os_index="0" cpuset="0x00000003" gp_index="2">
      <info name="CPUVendor" value="GenuineIntel"/>
      <info name="CPUFamilyNumber" value="6"/>
      <info name="CPUModelNumber" value="143"/>
      <info name="CPUModel" value="Xeon  "/>
      <object type="NUMANode" os_index="0" cpuset="0x00000003" gp_index="3" local_memory="1024"/>
      <object type="L3Cache" os_index="0" cpuset="0x00000003" gp_index="4" depth="3">
        <object type="L2Cache" cpuset="0x00000001" gp_index="5">
          <object type="Core" os_index="0" cpuset="0x00000001" gp_index="6"><object type="PU" os_index="0"/></object>
        </object>
        <object type="Core" os_index="1" cpuset="0x00000002" gp_index="7"/>
      </object>
      <object type="Bridge" gp_index="8" bridge_type="0-1" depth="0" bridge_pci="0000:[00-05]">
        <object type="Bridge" gp_index="9" bridge_type="1-1" bridge_pci="0000:[01-04]" pci_busid="0000:00:01.0" pci_type="0604 [8086:0001] [0000:0000] 00" pci_link_speed="31.5">
          <object type="Bridge" gp_index="10" bridge_type="1-1" bridge_pci="0000:[02-04]" pci_busid="0000:01:00.0" pci_type="0604 [1000:c010] [0000:0000] 00" pci_link_speed="31.5">
            <object type="Bridge" gp_index="11" bridge_type="1-1" bridge_pci="0000:[03-03]" pci_busid="0000:02:00.0" pci_type="0604 [1000:c010] [0000:0000] 00" pci_link_speed="31.5">
              <object type="PCIDev" gp_index="12" pci_busid="0000:03:00.0" pci_type="0302 [10de:20b5] [10de:1533] a1" pci_link_speed="31.5">
                <object type="OSDev" gp_index="13" name="nvml1" subtype="NVML" osdev_type="1"/>
              </object>
            </object>
            <object type="Bridge" gp_index="14" bridge_type="1-1" bridge_pci="0000:[04-04]" pci_busid="0000:02:01.0" pci_type="0604 [1000:c010] [0000:0000] 00" pci_link_speed="0">
              <object type="PCIDev" gp_index="15" pci_busid="0000:04:00.0" pci_type="0207 [15b3:1021] [15b3:0055] 00" pci_link_speed="0.000000">
                <object type="OSDev" gp_index="16" name="ib0" osdev_type="2"><info name="Port" value="1"/></object>
                <object type="OSDev" gp_index="17" name="mlx5_0" osdev_type="3">
                  <info name="Port1State" value="4"/><info name="Port2State" value="1"/>
                </object>
              </object>
            </object>
          </object>
        </object>
        <object type="Bridge" gp_index="18" bridge_type="1-1" bridge_pci="0000:[05-05]" pci_busid="0000:00:02.0" pci_type="0604 [8086:0001] [0000:0000] 00" pci_link_speed="15.75">
          <object type="PCIDev" gp_index="19" pci_busid="0000:05:00.0" pci_type="0302 [10de:20b5] [10de:1533] a1" pci_link_speed="15.75">
            <object type="OSDev" gp_index="20" name="nvml0" subtype="NVML" osdev_type="1"/>
          </object>
        </object>
      </object>
    </object>
    <object type="Package" os_index="1" cpuset="0x0000000c" gp_index="30">
      <object type="NUMANode" os_index="1" cpuset="0x0000000c" gp_index="31"/>
      <object type="Core" os_index="2" cpuset="0x00000004" gp_index="32"/>
      <object type="Core" os_index="3" cpuset="0x00000008" gp_index="33"/>
      <object type="Bridge" gp_index="34" bridge_type="0-1" depth="0" bridge_pci="0000:[80-80]">
        <object type="PCIDev" gp_index="35" pci_busid="0000:80:01.0" pci_type="0302 [10de:20b5] [10de:1533] a1" pci_link_speed="15.75">
          <object type="OSDev" gp_index="36" name="nvml2" subtype="NVML" osdev_type="1"/>
        </object>
        <object type="PCIDev" gp_index="37" pci_busid="0000:80:02.0" pci_type="0108 [144d:a80a] [144d:a801] 00"/>
      </object>
    </object>
  </object>
  <distances2 type="OSDev" nbobjs="3" kind="9" name="NVLinkBandwidth" indexing="gp">
    <indexes length="9">13 20 </indexes><indexes length="3">36 </indexes>
    <u64values length="4">1000000 50000 0 50000 </u64values>
    <u64values length="4">1000000 0 0 0 1000000 </u64values>
  </distances2>
</topology>
)";

TEST(HwlocXml, ShowsDevicesAndPaths) {
  const Graph graph = read_machine(kMachine);
  EXPECT_TRUE(graph.notes.empty());
  EXPECT_EQ(graph.at(0).name, "one");
  EXPECT_EQ(graph.all(NodeKind::kPackage).size(), 2);
  EXPECT_EQ(graph.all(NodeKind::kNuma).size(), 2);
  EXPECT_EQ(graph.all(NodeKind::kCache).size(), 1);
  EXPECT_EQ(graph.all(NodeKind::kCore).size(), 4);
  ASSERT_EQ(graph.all(NodeKind::kGpu).size(), 3);
  const int gpu0 = gpu(graph, 0), gpu1 = gpu(graph, 1), gpu2 = gpu(graph, 2);
  EXPECT_EQ(graph.at(gpu0).bus_id, "0000:05:00.0"); // NVML's number, not the order of bus ids
  const std::vector<int> nics = graph.all(NodeKind::kNic);
  ASSERT_EQ(nics.size(), 2);
  EXPECT_EQ(graph.at(nics[0]).net_device, "ib0");
  EXPECT_FALSE(graph.at(nics[0]).down);
  EXPECT_TRUE(graph.at(nics[1]).down);
  EXPECT_EQ(name_of(find_path(graph, gpu0, gpu1)), "NV2");
  EXPECT_EQ(name_of(find_path(graph, gpu0, gpu2)), "SYS");
  EXPECT_EQ(name_of(find_path(graph, gpu1, nics[0])), "PIX");
  EXPECT_EQ(name_of(find_path(graph, gpu0, nics[0])), "PHB");
  EXPECT_NEAR(find_path(graph, gpu1, nics[0]).bandwidth.gb_per_s, 31.5, 1e-9);
  EXPECT_EQ(nearest_nics(graph, gpu1), std::vector<int>{nics[0]}); // port 2 has no link
  EXPECT_EQ(graph.at(graph.above(gpu2, NodeKind::kNuma)).index, 1);
  EXPECT_EQ(graph.at(graph.above(gpu0, NodeKind::kPackage)).model, "Xeon");
}

TEST(HwlocXml, DoesNotDependOnTheOrderOfElements) {
  const Graph graph = read_machine(kMachine);
  for (unsigned seed = 0; seed < 20; ++seed) {
    // The order of the objects only: distances are a matrix.
    std::string text = kMachine;
    const std::size_t begin = text.find("<distances2"), end = text.find("</topology>");
    const std::string distances = text.substr(begin, end - begin);
    text.erase(begin, end - begin);
    text = shuffled(text, seed);
    text.insert(text.find("</topology>"), distances);
    EXPECT_EQ(read_machine(text), graph);
  }
}

TEST(HwlocXml, IsReadAsItIsWritten) {
  const Graph graph = read_machine(kMachine);
  expect_equal(read_machine(write_hwloc_xml(graph)), graph);
}

TEST(HwlocXml, RefusesWithASentence) {
  const auto message = [](const std::string& from, const std::string& to) {
    std::string xml = kMachine;
    xml.replace(xml.find(from), from.size(), to);
    const auto graph = read_xml(xml, "bad.xml");
    EXPECT_FALSE(graph.ok()) << to;
    return graph.ok() ? "" : graph.status().message();
  };
  EXPECT_THAT(message("version=\"2.0\"", ""), HasSubstr("line 1: <topology> has version=\"\""));
  EXPECT_THAT(message("type=\"Machine\"", "type=\"Core\""), HasSubstr("type Machine"));
  EXPECT_THAT(message("type=\"Package\"", "type=\"Machine\""), HasSubstr("line 4"));
  EXPECT_THAT(message("0x00000003", "0xf...f"), HasSubstr("cpuset=\"0xf...f\""));
  EXPECT_THAT(message("0000:02:01.0", "0000:02:00.0"), HasSubstr("of another device"));
  EXPECT_THAT(message("0000:02:01.0", "x"), HasSubstr("pci_busid=\"x\""));
  EXPECT_THAT(message("nbobjs=\"3\"", "nbobjs=\"4\""), HasSubstr("3 indexes and 9 values"));
  EXPECT_THAT(message("nbobjs=\"3\"", "nbobjs=\"-3\""), HasSubstr("nbobjs=\"-3\""));
}

TEST(Xml, EndsInASentenceWhateverIsChanged) {
  unsigned state = 1;
  const auto random = [&state](std::size_t below) {
    state = state * 1664525U + 1013904223U;
    return static_cast<std::size_t>(state >> 8U) % below;
  };
  for (const std::string& xml : {std::string(kMachine), nccl_machine(8, cube_mesh())}) {
    for (int round = 0; round < 2000; ++round) {
      std::string text = xml;
      for (std::size_t i = 0; i <= random(4); ++i) {
        const std::size_t at = random(text.size()), length = random(20);
        switch (random(4)) {
          case 0:
            text.erase(at, length);
            break;
          case 1:
            text.insert(at, text.substr(random(text.size()), length));
            break;
          case 2:
            text[at] = static_cast<char>('!' + random(90));
            break;
          default:
            text.resize(at + 1);
        }
      }
      const auto graph = read_xml(std::move(text), "changed.xml");
      if (!graph.ok()) {
        EXPECT_THAT(graph.status().message(), HasSubstr("changed.xml"));
      } else {
        for (const int one : graph->all(NodeKind::kGpu)) nearest_nics(*graph, one);
      }
    }
  }
}

} // namespace
} // namespace whorl::topology
