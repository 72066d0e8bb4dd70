#include "topology/nccl_xml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "machines.h"
#include "topology/hwloc_xml.h"
#include "topology/paths.h"
#include "topology/xml.h"

namespace whorl::topology {
namespace {

using testing::HasSubstr;

TEST(NcclXml, ShowsDevicesAndPaths) {
  const Graph graph = read_machine(nccl_machine(4, {{0, 1, 2}}));
  EXPECT_TRUE(graph.notes.empty());
  EXPECT_EQ(graph.all(NodeKind::kGpu).size(), 4);
  EXPECT_EQ(graph.all(NodeKind::kNic).size(), 4);
  EXPECT_EQ(graph.all(NodeKind::kNuma).size(), 2);
  const auto path = [&](int a, int b) { return find_path(graph, a, b); };
  EXPECT_EQ(name_of(path(gpu(graph, 0), gpu(graph, 1))), "NV2");
  EXPECT_EQ(path(gpu(graph, 0), gpu(graph, 1)).bandwidth.gb_per_s, 50);
  EXPECT_EQ(name_of(path(gpu(graph, 2), gpu(graph, 3))), "PHB");
  EXPECT_NEAR(path(gpu(graph, 2), gpu(graph, 3)).bandwidth.gb_per_s, 15.75, 0.01);
  EXPECT_EQ(name_of(path(gpu(graph, 0), gpu(graph, 2))), "SYS");
  EXPECT_EQ(path(gpu(graph, 0), gpu(graph, 2)).bandwidth.gb_per_s, 10); // between Skylakes
  EXPECT_EQ(path(gpu(graph, 0), gpu(graph, 2)).bandwidth.origin, Origin::kTable);
  for (int g = 0; g < 4; ++g) {
    const std::vector<int> nics = nearest_nics(graph, gpu(graph, g));
    ASSERT_EQ(nics.size(), 1);
    EXPECT_EQ(graph.at(nics.front()).index, g);
    EXPECT_EQ(name_of(path(gpu(graph, g), nics.front())), "PIX");
    EXPECT_EQ(path(gpu(graph, g), nics.front()).bandwidth.gb_per_s, 12.5);
  }
}

TEST(NcclXml, DoesNotDependOnTheOrderOfElements) {
  // NICs that differ in their place only, and cards that differ in their ports' rates only.
  const std::string nic = "<nic><net name=\"eth0\"/></nic>", end = "</pci>";
  const auto card = [&](const std::string& speed) {
    return "<pci busid=\"03:00.0\" class=\"0x020000\"><nic><net speed=\"" + speed +
           "\"/></nic></pci>";
  };
  const std::string alike = "<system>" + nic + "<pci busid=\"01:00.0\">" + card("100") +
                            card("200") + nic + end + "<pci busid=\"02:00.0\">" + card("100") +
                            nic + end + "</system>";
  // A link that only another one shows to lead to a switch.
  const auto linked = [](const std::string& bus_id, const std::string& link) {
    return "<pci busid=\"" + bus_id + "\"><gpu sm=\"80\"><nvlink target=\"c1:00.0\" " + link +
           "/></gpu></pci>";
  };
  const std::string shown =
      "<system>" + linked("01:00.0", "tclass=\"0x068000\"") + linked("02:00.0", "") + "</system>";
  EXPECT_EQ(read_machine(shown).links.size(), 2);
  for (const std::string& xml : {nccl_machine(8, cube_mesh()), alike, shown}) {
    Graph graph = read_machine(xml);
    graph.notes.clear();
    for (unsigned seed = 0; seed < 20; ++seed) {
      Graph other = read_machine(shuffled(xml, seed));
      other.notes.clear();
      expect_equal(other, graph);
    }
  }
}

TEST(NcclXml, IsReadAsItIsWritten) {
  for (const std::string& xml :
       {nccl_machine(8, cube_mesh()), nccl_machine(3, {}, "sm=\"104\" gcn=\"910\""),
        std::string("<system><cpu numaid=\"0\"><pci busid=\"01:00.0\" class=\"0x030200\"/>"
                    "<pci busid=\"02:00.0\"><gpu sm=\"90\"><nvlink target=\"c1:00.0\" count=\"18\" "
                    "tclass=\"0x068000\"/><c2c count=\"10\" bw=\"45000\"/></gpu></pci>"
                    "<nic><net name=\"eth0\"/></nic></cpu></system>")}) {
    const Graph graph = read_machine(xml);
    expect_equal(read_machine(write_nccl_xml(graph)), graph);
  }
}

TEST(NcclXml, IsReadAsItIsWrittenWhateverIsOdd) {
  const auto kept = [](const std::string& xml) {
    const Graph graph = read_machine(xml);
    expect_kept(graph);
    return graph;
  };
  const auto card = [](const std::string& link) {
    return "<system><pci busid=\"01:00.0\" class=\"0x020000\" " + link + "/></system>";
  };
  const auto speed = [&](const std::string& link) { return kept(card(link)).at(1).up; };
  EXPECT_NEAR(speed("link_speed=\"8 GT/s\" link_width=\"12\"").gb_per_s, 11.8, 0.1);
  EXPECT_NEAR(speed("link_speed=\"128.0 GT/s PCIe\" link_width=\"16\"").gb_per_s, 242, 0.1);
  EXPECT_FALSE(speed("link_speed=\"8 GT/s\" link_width=\"10\"").known()); // PCI has no such width
  // Only one end names the links, and only the other end says what it is.
  const Graph two = kept(
      "<system><pci busid=\"01:00.0\"><gpu><nvlink target=\"02:00.0\" count=\"4\"/></gpu></pci>"
      "<pci busid=\"02:00.0\"><gpu sm=\"70\"/></pci></system>");
  ASSERT_EQ(two.links.size(), 1);
  EXPECT_EQ(two.links[0].bandwidth, (Bandwidth{100, Origin::kTable}));
  // hwloc wants numbers of all NUMA nodes.
  kept("<system><cpu numaid=\"-1\" affinity=\"1\"/><cpu numaid=\"0\" affinity=\"2\"/></system>");
  // Several NUMA nodes with the same processors, each of which hwloc wants once.
  const Graph same =
      kept("<system><cpu affinity=\"3\"/><cpu numaid=\"1\" affinity=\"6\"/></system>");
  const std::string xml = write_hwloc_xml(same);
  std::size_t units = 0;
  for (std::size_t at = 0; (at = xml.find("\"PU\"", at)) != std::string::npos; ++at) ++units;
  EXPECT_EQ(units, 3);
  // A bridge by what is in it, all of which is left out; a class that is no hexadecimal number.
  EXPECT_EQ(kept("<system><pci busid=\"01:00.0\" class=\"0x015100\"><pci busid=\"02:00.0\"/></pci>"
                 "</system>")
                .nodes.size(),
            2);
  kept("<system><pci busid=\"01:00.0\" class=\"999999\"><gpu/></pci></system>");
  // A NIC with the class and the bus id of a GPU.
  kept(
      "<system><pci busid=\"01:00.0\" class=\"0x030200\"><nic/></pci>"
      "<pci busid=\"01:00.0\" class=\"0x030200\"><gpu/></pci></system>");
  // A link to a switch without a bus id.
  const Graph hidden = kept(
      "<system><pci busid=\"01:00.0\"><gpu><nvlink count=\"3\" tclass=\"0x068000\"/></gpu></pci>"
      "</system>");
  EXPECT_EQ(hidden.at(gpu(hidden, 0)).hidden_links, 3);
  // Partitions of a switch have one bus id.
  kept(
      "<system><pci busid=\"01:00.0\" class=\"0x060400\"><pci busid=\"02:00.0\"><gpu/></pci>"
      "</pci><pci busid=\"01:00.0\" class=\"0x060400\"><pci busid=\"03:00.0\"><gpu/></pci>"
      "</pci></system>");
}

TEST(NcclXml, UnderstandsWhatIsOdd) {
  const std::string head = R"(<system version="1"><cpu numaid="-1" affinity="">)";
  const std::string tail = "</cpu></system>";
  const auto read = [&](const std::string& body) { return read_machine(head + body + tail); };
  // Neither speed nor width; a link to itself.
  Graph graph = read(R"(<pci busid="0001:00:00.0" class="0x030200" link_speed="" link_width="0">
    <gpu dev="0" sm="80"><nvlink target="0001:00:00.0" count="12" tclass="0x030200"/></gpu></pci>)");
  EXPECT_FALSE(graph.at(gpu(graph, 0)).up.known());
  EXPECT_TRUE(graph.links.empty());
  EXPECT_EQ(graph.at(gpu(graph, 0)).hidden_links, 12);
  ASSERT_EQ(graph.notes.size(), 1);
  EXPECT_THAT(graph.notes.front(),
              HasSubstr("machine.xml, line 2: the link leads from 0001:00:00.0 to itself"));

  // Elements with nothing but a bus id, a GPU without <gpu>, a NIC without <nic>.
  graph = read(R"(<pci busid="0000:01:00.0"/><pci busid="0000:02:00.0" class="0x030200"/>
                  <pci busid="0000:03:00.0" class="0x020700"/>)");
  EXPECT_EQ(graph.all(NodeKind::kGpu).size(), 1);
  EXPECT_EQ(graph.all(NodeKind::kNic).size(), 1);
  EXPECT_TRUE(graph.at(graph.all(NodeKind::kNic).front()).rdma);
  ASSERT_EQ(graph.notes.size(), 1);
  EXPECT_THAT(graph.notes.front(), HasSubstr("0000:01:00.0 is neither GPU, NIC nor bridge"));

  // Classes of four digits, and AMD's names of generations.
  graph = read(R"(<pci busid="0000:01:00.0" class="0x0302"/>
    <pci busid="0000:02:00.0" class="0x120000"><gpu sm="94" gcn="gfx942"/></pci>
    <pci busid="0000:03:00.0" class="0x038000"><gpu sm="90" gcn="gfx90a"/></pci>)");
  ASSERT_EQ(graph.all(NodeKind::kGpu).size(), 3);
  EXPECT_EQ(graph.at(gpu(graph, 1)).gpu_arch, 942);
  EXPECT_EQ(graph.at(gpu(graph, 2)).gpu_arch, 910);

  // A NIC of no card; two ports of one card.
  graph = read(R"(<nic><net name="eth0" speed="10000" guid="0x0"/></nic>
    <pci busid="0000:03:00.0" class="0x020000"><nic><net name="a" port="1" guid="0x5"/>
    <net name="b" port="2" guid="0x5"/></nic></pci>)");
  const std::vector<int> nics = graph.all(NodeKind::kNic);
  ASSERT_EQ(nics.size(), 3);
  EXPECT_EQ(name_of(find_path(graph, nics[1], nics[2])), "PIX");

  // Both ends name different numbers of links.
  graph = read(
      R"(<pci busid="01:00.0"><gpu dev="0" sm="70"><nvlink target="02:00.0" count="3"/></gpu></pci>
    <pci busid="02:00.0"><gpu dev="1" sm="70"><nvlink target="01:00.0" count="2"/></gpu></pci>)");
  ASSERT_EQ(graph.links.size(), 1);
  EXPECT_EQ(graph.links.front().count, 2);
  EXPECT_THAT(graph.notes.front(), HasSubstr("name 3 and 2 links"));
}

TEST(NcclXml, PrefersRdmaNicsWithARate) {
  const std::string gpu_and_nics = R"(<pci busid="01:00.0" class="0x030200"/>
    <nic><net name="eth0" dev="0" port="0" speed="100000" guid="0x0"/>
         <net name="docker0" dev="1" port="0" speed="10000" guid="0x1"/></nic>)";
  const auto nearest = [&](const std::string& more) {
    const Graph graph =
        read_machine("<system><cpu numaid=\"0\">" + gpu_and_nics + more + "</cpu></system>");
    std::string names;
    for (const int nic : nearest_nics(graph, gpu(graph, 0))) names += graph.at(nic).name + " ";
    return names;
  };
  EXPECT_EQ(nearest(""), "eth0 "); // sockets number their interfaces in place of a guid
  EXPECT_EQ(nearest(R"(<nic><net name="eth1" dev="2" port="0" speed="-1" guid="0x2"/></nic>)"),
            "eth0 ");
  EXPECT_EQ(nearest(R"(<nic><net name="veth1" dev="2" port="0" speed="200000"/></nic>)"), "eth0 ");
  EXPECT_EQ(nearest(R"(<nic><net name="cxi0" dev="2" port="0" speed="1000" guid="0x0"/></nic>)"),
            "cxi0 ");
}

TEST(NcclXml, JoinsSwitches) {
  const auto one = [](int g, int to) {
    return "<pci busid=\"0" + std::to_string(g) + ":00.0\"><gpu sm=\"80\"><nvlink target=\"c" +
           std::to_string(to) + ":00.0\" count=\"6\" tclass=\"0x068000\"/></gpu></pci>";
  };
  const Graph graph =
      read_machine("<system><cpu numaid=\"0\">" + one(1, 1) + one(2, 2) + "</cpu></system>");
  EXPECT_EQ(graph.all(NodeKind::kNvSwitch).size(), 2);
  const Path path = find_path(graph, gpu(graph, 0), gpu(graph, 1));
  EXPECT_EQ(name_of(path), "NV6");
  EXPECT_EQ(path.bandwidth.gb_per_s, 150);
}

TEST(NcclXml, ShowsTheFirstOfSeveralHosts) {
  const auto host = [](const std::string& hash) {
    return "<cpu numaid=\"0\" host_hash=\"" + hash +
           "\"><pci busid=\"01:00.0\"><gpu sm=\"100\"><nvlink target=\"fffffff:ff:ff.0\" "
           "count=\"18\" tclass=\"0x068000\"/></gpu></pci></cpu>";
  };
  const Graph graph =
      read_machine("<system>" + host("0xa") + host("0xb") + host("0xc") + "</system>");
  EXPECT_EQ(graph.all(NodeKind::kGpu).size(), 1);
  ASSERT_EQ(graph.notes.size(), 1);
  EXPECT_THAT(graph.notes.front(), HasSubstr("there are 3 hosts, of which the first is shown"));
}

TEST(NcclXml, RefusesWithASentence) {
  const auto message = [](const std::string& xml) {
    const auto graph = read_xml(xml, "bad.xml");
    EXPECT_FALSE(graph.ok()) << xml;
    return graph.ok() ? "" : graph.status().message();
  };
  EXPECT_THAT(message("<system>\n<cpu>\n</system>"),
              HasSubstr("bad.xml, line 3: not well-formed XML"));
  EXPECT_THAT(message(""), HasSubstr("bad.xml"));
  EXPECT_THAT(message("<html/>"), HasSubstr("bad.xml, line 1: <html> is no topology"));
  EXPECT_THAT(message("<system>\n<pci busid=\"here\"/></system>"),
              HasSubstr("bad.xml, line 2: <pci> has busid=\"here\""));
  EXPECT_THAT(message("<system><cpu numaid=\"one\"/></system>"), HasSubstr("numaid=\"one\""));
  EXPECT_THAT(message("<system><cpu affinity=\"all\"/></system>"), HasSubstr("affinity=\"all\""));
  EXPECT_THAT(message("<system><gpu/></system>"),
              HasSubstr("<gpu> is not allowed inside <system>"));
  EXPECT_THAT(message("<system><cpu numaid=\"1\"/>\n<cpu numaid=\"1\"/></system>"),
              HasSubstr("line 2: <cpu> has numaid=\"1\" like another one"));
  EXPECT_THAT(
      message("<system><pci busid=\"01:00.0\"><gpu/></pci>\n<pci busid=\"01:00.0\"><gpu/></pci>"
              "</system>"),
      HasSubstr("line 2: <pci> has the bus id 0000:01:00.0 of another GPU"));
  EXPECT_THAT(message("<system><pci busid=\"01:00.0\"><gpu/>\n<gpu dev=\"1\"/></pci></system>"),
              HasSubstr("<gpu> is not the only one of its device"));
  EXPECT_THAT(message("<system><pci busid=\"01:00.0\"><gpu gcn=\"gfx\"/></pci></system>"),
              HasSubstr("gcn=\"gfx\""));
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += "<pci busid=\"01:00.0\">";
  for (int i = 0; i < 5000; ++i) deep += "</pci>";
  EXPECT_THAT(message("<system>" + deep + "</system>"), HasSubstr("no topology has as many"));
}

} // namespace
} // namespace whorl::topology
