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
std::string machine() { return fixture("hwloc_machine.xml"); }

/// Returns the machine with the first occurrence of a text replaced.
std::string changed(const std::string& from, const std::string& to) {
  std::string xml = machine();
  xml.replace(xml.find(from), from.size(), to);
  return xml;
}

TEST(HwlocXml, ShowsDevicesAndPaths) {
  const Graph graph = read_machine(machine());
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
  const Graph graph = read_machine(machine());
  for (unsigned seed = 0; seed < 20; ++seed) {
    // The order of the objects only: distances are a matrix.
    std::string text = machine();
    const std::size_t begin = text.find("<distances2"), end = text.find("</topology>");
    const std::string distances = text.substr(begin, end - begin);
    text.erase(begin, end - begin);
    text = shuffled(text, seed);
    text.insert(text.find("</topology>"), distances);
    EXPECT_EQ(read_machine(text), graph);
  }
  // Network devices that do not say which port they are.
  const std::string eth0 = "<object type=\"OSDev\" name=\"eth0\" osdev_type=\"2\"/>";
  const std::string eth1 = "<object type=\"OSDev\" name=\"eth1\" osdev_type=\"2\"/>";
  const std::string begin = "<object type=\"OSDev\" gp_index=\"16\"";
  EXPECT_EQ(read_machine(changed(begin, eth0 + eth1 + begin)),
            read_machine(changed(begin, eth1 + eth0 + begin)));
  // Links between generations: GPU 0, which comes first by its number, and GPU 1 by the file.
  const Graph newer = read_machine(changed("10de:20b5", "10de:2901"));
  EXPECT_EQ(newer.links.front().count, 1);
  const std::string gpu0 = "pci_busid=\"0000:05:00.0\" pci_type=\"0302 [10de:";
  EXPECT_EQ(read_machine(changed(gpu0 + "20b5", gpu0 + "2901")).links.front().count, 1);
}

TEST(HwlocXml, IsReadAsItIsWritten) {
  const Graph graph = read_machine(machine());
  expect_equal(read_machine(write_hwloc_xml(graph)), graph);
}

/// Returns a machine with two packages, a GPU in each, and more of the machine and the topology.
std::string two_packages(const std::string& version, const std::string& of_machine,
                         const std::string& of_packages = "", const std::string& of_topology = "") {
  const auto package = [&](const std::string& number, const std::string& cpus) {
    return "<object type=\"Package\" os_index=\"" + number + "\" cpuset=\"" + cpus +
           "\"><object type=\"NUMANode\" os_index=\"" + number + "\" cpuset=\"" + cpus +
           "\"/><object type=\"PCIDev\" gp_index=\"1" + number + "\" pci_busid=\"0000:" + number +
           "0:00.0\" pci_type=\"1200 [1002:74a0] [0:0] 0\" pci_link_speed=\"63\"/>" +
           (number == "0" ? of_packages : "") + "</object>";
  };
  return "<topology version=\"" + version + "\"><object type=\"Machine\" cpuset=\"0x3\">" +
         of_machine + package("0", "0x1") + package("1", "0x2") + "</object>" + of_topology +
         "</topology>";
}

TEST(HwlocXml, TakesMemoryBehindCxlAndOfGpusForThatOfNoProcessor) {
  const Graph graph =
      read_machine(two_packages("2.0", R"(<object type="NUMANode" os_index="2" cpuset="0x3"/>)"));
  const std::vector<int> numas = graph.all(NodeKind::kNuma);
  ASSERT_EQ(numas.size(), 3);
  EXPECT_TRUE(graph.at(numas[2]).cpus.empty());
  EXPECT_EQ(graph.at(graph.above(gpu(graph, 1), NodeKind::kNuma)).index, 1);
  EXPECT_EQ(name_of(find_path(graph, gpu(graph, 0), gpu(graph, 1))), "SYS");
  expect_equal(read_machine(write_hwloc_xml(graph)), graph);
}

TEST(HwlocXml, ReadsWhatIsNewInVersion3) {
  const std::string nic =
      R"(<object type="PCIDev" pci_busid="0000:05:00.0" pci_type="0200 [17db:0501] [0:0] 0">
           <object type="OSDev" name="cxi0" osdev_type="48"/>
           <object type="OSDev" name="hsn0" osdev_type="16"/></object>)";
  const Graph graph =
      read_machine(two_packages("3.0", "", nic, R"(<info name="HostName" value="three"/>)"));
  EXPECT_EQ(graph.at(0).name, "three");
  const std::vector<int> nics = graph.all(NodeKind::kNic);
  ASSERT_EQ(nics.size(), 1);
  EXPECT_TRUE(graph.at(nics[0]).rdma);
  EXPECT_EQ(graph.at(nics[0]).net_device, "hsn0");
}

TEST(HwlocXml, LeavesVirtualFunctionsOutThatAreNotInUse) {
  std::string functions;
  for (int i = 0; i < 300; ++i) {
    functions += "<object type=\"PCIDev\" pci_busid=\"0001:" + std::to_string(100 + i) +
                 ":00.0\" pci_type=\"0200 [15b3:101e] [0:0] 0\" pci_link_speed=\"0.0\"/>";
  }
  const Graph graph = read_machine(two_packages("2.0", "", functions));
  EXPECT_TRUE(graph.all(NodeKind::kNic).empty());
  ASSERT_EQ(graph.notes.size(), 1);
  EXPECT_THAT(graph.notes.front(), HasSubstr("300 network devices with neither driver nor"));
}

TEST(HwlocXml, LeavesOpenHowFastTheLinkOfAnIdleGpuIs) {
  const Graph graph = read_machine(
      two_packages("2.0", "",
                   R"(<object type="Bridge" bridge_type="0-1" bridge_pci="0000:[05-06]">
           <object type="Bridge" bridge_type="1-1" pci_busid="0000:05:00.0" pci_link_speed="4.0">
             <object type="PCIDev" pci_busid="0000:06:00.0" pci_type="0302 [10de:20b5]"
                     pci_link_speed="4.0"/></object></object>)"));
  const int idle = graph.find_bus_id("0000:06:00.0");
  EXPECT_FALSE(graph.at(idle).up.known());
  EXPECT_FALSE(graph.at(graph.at(idle).parent).up.known()); // the other end of the same link
}

TEST(HwlocXml, CountsLinksOfEachGeneration) {
  const auto links = [](const std::string& mb_per_s) {
    const Graph graph = read_machine(two_packages(
        "2.0", "", "",
        "<distances2 type=\"PCIDev\" nbobjs=\"2\" name=\"XGMIBandwidth\"><indexes>10 11</indexes>"
        "<u64values>0 " +
            mb_per_s + " " + mb_per_s + " 0</u64values></distances2>"));
    return name_of(find_path(graph, gpu(graph, 0), gpu(graph, 1)));
  };
  EXPECT_EQ(links("100000"), "XGMI2");
  EXPECT_EQ(links("128000"), "XGMI2");
  EXPECT_EQ(links("76800"), "XGMI1");
  EXPECT_EQ(links("70000"), "XGMI?");
}

TEST(HwlocXml, IsReadAsItIsWrittenWhateverIsOdd) {
  const std::pair<std::string, std::string> changes[] = {
      {"0000:02:01.0", "0000:02:00.0"}, // a bus id of two ports of a switch
      {"name=\"mlx5_0\"", ""},          // an RDMA device without a name
      {"<indexes length=\"9\">13 20", "<indexes length=\"9\">13 9"},  // a link to a bridge
      {"<indexes length=\"9\">13 20", "<indexes length=\"9\">13 15"}, // and to a NIC
      {"name=\"ib0\"", "name=\"cxi0\""}, // Slingshot's RDMA device, shown as a network device
      // Caches of one core: with another one in what is left out, and of a core's threads.
      {"type=\"Core\" os_index=\"1\" cpuset=\"0x00000002\" gp_index=\"7\"/>",
       "type=\"Misc\"><object type=\"Core\"/></object>"},
      {"gp_index=\"32\"/>",
       "><object type=\"L2Cache\"><object type=\"PU\"/>"
       "<object type=\"PU\"/></object></object>"},
      {"<object type=\"OSDev\" gp_index=\"16\"", // a network device that takes another's port
       "<object type=\"OSDev\" name=\"eth0\" osdev_type=\"2\"/><object type=\"OSDev\""},
      {"<object type=\"OSDev\" gp_index=\"16\"", // an RDMA device that appears twice
       "<object type=\"OSDev\" name=\"mlx5_0\" osdev_type=\"3\"/>"
       "<object type=\"OSDev\" gp_index=\"16\""},
      {"50000 0 50000", "50001 0 50001"},
      {"pci_link_speed=\"31.5\"", "pci_link_speed=\"7.87600923\""},
      {"nvml1", "nvml1949310903"},
      {"value=\"6\"", "value=\"-6\""},
      {"value=\"143\"", "value=\"99999999999999999999\""},
  };
  for (const auto& [from, to] : changes) {
    SCOPED_TRACE(to);
    expect_kept(read_machine(changed(from, to)));
  }
}

TEST(HwlocXml, RefusesWithASentence) {
  const auto message = [](const std::string& from, const std::string& to) {
    const auto graph = read_xml(changed(from, to), "bad.xml");
    EXPECT_FALSE(graph.ok()) << to;
    return graph.ok() ? "" : graph.status().message();
  };
  EXPECT_THAT(message("version=\"2.0\"", ""), HasSubstr("line 1: <topology> has version=\"\""));
  EXPECT_THAT(message("type=\"Machine\"", "type=\"Core\""), HasSubstr("type Machine"));
  EXPECT_THAT(message("type=\"Package\"", "type=\"Machine\""), HasSubstr("line 4"));
  EXPECT_THAT(message("0x00000003", "0xf...f"), HasSubstr("cpuset=\"0xf...f\""));
  EXPECT_THAT(message("0000:05:00.0", "0000:03:00.0"), HasSubstr("of another GPU or switch"));
  EXPECT_THAT(message("type=\"NUMANode\" os_index=\"0\"", "type=\"NUMANode\""),
              HasSubstr("has no os_index"));
  EXPECT_THAT(message("type=\"NUMANode\" os_index=\"1\"", "type=\"NUMANode\" os_index=\"0\""),
              HasSubstr("has the os_index 0 of another one"));
  EXPECT_THAT(message("gp_index=\"20\"", "gp_index=\"13\""),
              HasSubstr("has the gp_index 13 of another object"));
  EXPECT_THAT(message("0000:02:01.0", "x"), HasSubstr("pci_busid=\"x\""));
  EXPECT_THAT(message("type=\"NUMANode\" os_index=\"1\"", "type=\"NUMANode\" os_index=\"1024\""),
              HasSubstr("has no os_index from 0 to 1023"));
  EXPECT_THAT(message("nbobjs=\"3\"", "nbobjs=\"4\""), HasSubstr("3 indexes and 9 values"));
  EXPECT_THAT(message("nbobjs=\"3\"", "nbobjs=\"-3\""), HasSubstr("nbobjs=\"-3\""));
}

} // namespace
} // namespace whorl::topology
