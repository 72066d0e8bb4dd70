#include "topology/fabric.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "machines.h"
#include "topology/fabric_text.h"
#include "topology/hostlist.h"

namespace whorl::topology {
namespace {

using testing::HasSubstr;

Fabric read_well(const std::string& text) {
  auto fabric = read_fabric(text, "net");
  EXPECT_TRUE(fabric.ok()) << fabric.status().message();
  return fabric.ok() ? *std::move(fabric) : Fabric();
}

/// Returns the names above a host, as "leaf group".
std::string above(const Fabric& fabric, std::string_view host) {
  std::string text;
  for (const int it : fabric.above(host)) {
    text += fmt::format("{}{}", text.empty() ? "" : " ", fabric.at(it).name);
  }
  return text;
}

std::string expand(std::string_view list) {
  const auto names = expand_hostlist(list, 1000);
  return names.ok() ? fmt::format("{}", fmt::join(*names, " ")) : names.status().message();
}

/// Returns the lines, or other parts that end with `separator`, in an order that `seed` chooses.
std::string shuffled_parts(const std::string& text, const std::string& separator, unsigned seed) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    end = std::min(text.find(separator, begin), text.size() - separator.size()) + separator.size();
    parts.push_back(text.substr(begin, end - begin));
  }
  std::mt19937 random(seed);
  for (std::size_t i = parts.size(); i > 1; --i) std::swap(parts[i - 1], parts[random() % i]);
  return fmt::format("{}", fmt::join(parts, ""));
}

TEST(Hostlist, IsExpandedAsSlurmDoes) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"", ""},
      {"n1", "n1"},
      {"n1,n2 n3,,", "n1 n2 n3"},
      {"n[1-3]", "n1 n2 n3"},
      {"n[08-11]", "n08 n09 n10 n11"},
      {"n[8-011]", "n8 n9 n10 n11"},
      {"n[1-2,7,09]", "n1 n2 n7 n09"},
      {"rack[1-2,7]node[01-02]",
       "rack1node01 rack1node02 rack2node01 rack2node02 rack7node01 "
       "rack7node02"},
      {"n[1-2]-ib,login", "n1-ib n2-ib login"},
      {"[1-2]", "1 2"},
      {"n[5-5]", "n5"},
      {"n[0000000]", "n0000000"},
  };
  for (const auto& [list, names] : cases) EXPECT_EQ(expand(list), names) << list;
}

TEST(Hostlist, IsRefusedWithASentence) {
  const std::pair<std::string, std::string_view> cases[] = {
      {"n[1-3", "bracket is not closed"},
      {"n]1", "no name of a host"},
      {"n[]", "no range of numbers"},
      {"n[1-]", "no range of numbers"},
      {"n[-1]", "no range of numbers"},
      {"n[1,,2]", "no range of numbers"},
      {"n[a-b]", "no range of numbers"},
      {"n[[1-2]]", "no range of numbers"},
      {"n[1-2-3]", "no range of numbers"},
      {"n[0-18446744073709551616]", "no range of numbers"},
      {"n[3-1]", "ends before its beginning"},
      {"n[0-999999999]", "more names"},
      {"n[0-1000]", "more names"},
      {"n[0-99][0-99]", "more names"},
      {"n[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]", "more names"},
      {"switch{s1}", "no name of a host"},
      {std::string(129, 'n'), "more than 128 characters"},
      {"n[0-9]" + std::string(128, 'n'), "more than 128 characters"},
  };
  for (const auto& [list, sentence] : cases) EXPECT_THAT(expand(list), HasSubstr(sentence)) << list;
  std::string brackets = "n";
  for (int i = 0; i < 1000; ++i) brackets += "[0]";
  EXPECT_THAT(expand(brackets), HasSubstr("too many brackets"));
}

TEST(Hostlist, IsWrittenInNaturalOrder) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"", ""},
      {"n1", "n1"},
      {"n10,n9,n8,n11", "n[8-11]"},
      {"n10,n09,n08", "n[08-10]"},
      {"n1,n2,n4,login,n5", "login,n[1-2,4-5]"},
      {"n1,n01,n001", "n[001,01,1]"},
      {"rack2n1,rack1n2,rack1n1", "rack1n[1-2],rack2n1"},
      {"n1-ib,n2-ib,n3", "n[1-2]-ib,n3"},
      {"a99999999999999999999,a99999999999999999998",
       "a99999999999999999998,a99999999999999999999"},
      {"n[0-99]", "n[0-99]"},
      {"n[00-99]", "n[00-99]"},
  };
  for (const auto& [list, text] : cases) {
    const auto names = expand_hostlist(list, 1000);
    ASSERT_TRUE(names.ok()) << list;
    EXPECT_EQ(to_hostlist(*names), text);
    auto again = expand_hostlist(text, 1000);
    ASSERT_TRUE(again.ok());
    EXPECT_THAT(*again, testing::UnorderedElementsAreArray(*names)) << text;
  }
}

TEST(Hostlist, OrdersNumbersAsNumbers) {
  const std::vector<std::string> ordered = {"",    "a",    "a0",    "a1",     "a01", "a2",
                                            "a10", "a10b", "a10b2", "a10b10", "ab",  "b"};
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    for (std::size_t j = 0; j < ordered.size(); ++j) {
      // Leading zeros decide only where nothing else does.
      if ((ordered[i] == "a1" && ordered[j] == "a01") ||
          (ordered[i] == "a01" && ordered[j] == "a1"))
        continue;
      EXPECT_EQ(natural_less(ordered[i], ordered[j]), i < j) << ordered[i] << " " << ordered[j];
    }
  }
  EXPECT_NE(natural_less("a1", "a01"), natural_less("a01", "a1"));
}

TEST(Fabric, ReadsSlurmsTree) {
  const Fabric fabric = read_well(fixture("topology.conf"));
  EXPECT_EQ(fabric.format, FabricFormat::kSlurmConf);
  EXPECT_TRUE(fabric.notes.empty());
  EXPECT_EQ(fabric.hosts.size(), 8);
  EXPECT_EQ(above(fabric, "rack1node03"), "rack1 top");
  EXPECT_EQ(above(fabric, "login"), "rack2 top");
  EXPECT_EQ(above(fabric, "rack1node3"), "");
  EXPECT_EQ(to_summary(fabric), "8 hosts, 2 leaves with 4 hosts each, 1 other switch or group");
  EXPECT_EQ(to_tree(fabric),
            "top\n"
            "  rack1: 4 hosts, rack1node[01-04]\n"
            "  rack2: 4 hosts, login,rack2node[01-03]\n");
}

TEST(Fabric, ReadsSlurmsBlocks) {
  const Fabric fabric = read_well(fixture("topology_blocks.conf"));
  EXPECT_TRUE(fabric.notes.empty());
  EXPECT_EQ(above(fabric, "gb018"), "block1");
  EXPECT_EQ(above(fabric, "gb019"), "block2");
  EXPECT_EQ(to_summary(fabric),
            "36 hosts, 2 leaves with 18 hosts each, 0 other switches or groups, 2 roots");
}

TEST(Fabric, FindsHostsWithAndWithoutTheirDomain) {
  const Fabric fabric = read_well(
      "SwitchName=a Nodes=n1,n2.one.org,n3.one.org\nSwitchName=b Nodes=n3.two.org,n4,n4.two.org\n");
  EXPECT_EQ(above(fabric, "n1"), "a");
  EXPECT_EQ(above(fabric, "n1.one.org"), "a");
  EXPECT_EQ(above(fabric, "n2.one.org"), "a");
  EXPECT_EQ(above(fabric, "n2"), "a");
  EXPECT_EQ(above(fabric, "n2.two.org"), ""); // another host, for all that is known
  EXPECT_EQ(above(fabric, "n3.two.org"), "b");
  EXPECT_EQ(above(fabric, "n3"), "");
  EXPECT_EQ(above(fabric, "n4"), "b");
  EXPECT_EQ(above(fabric, ""), "");
  EXPECT_EQ(above(fabric, "."), "");
}

TEST(Fabric, ReadsTheSyntaxOfTopologyConf) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"SwitchName=s Nodes=n\n", "s"},
      {"SwitchName=s Nodes=n", "s"},
      {"\xef\xbb\xbfSwitchName=s Nodes=n", "s"},
      {"SwitchName=s Nodes=n\r\n", "s"},
      {"  switchname = s\tNODES = \"m, n\"  # comment\n", "s"},
      {"SwitchName=s \\\n  Nodes=\\\n n\n", "s"},
      {"SwitchName=s \\  \nNodes=n\n", "s"},
      {"SwitchName=s\\#1 Nodes=n # rest\n", "s#1"},
      {"SwitchName=s Nodes=n # a comment is never continued \\\nSwitchName=t Switches=s\n", "s t"},
      {"SwitchName=t Switches=s\nSwitchName=s Nodes=n\n", "s t"},
      {"SwitchName=t Switches=s[01-02] Nodes=n\nSwitchName=s01\nSwitchName=s02\n", "t"},
      {"SwitchName=s Nodes=n,n LinkSpeed=100\nBlockSizes=1,2\n", "s"},
      {"Foo=bar\nSwitchName=s Color=red Nodes=n\n", "s"},
      {"SwitchName=n Nodes=n\n", "n"},
  };
  for (const auto& [text, chain] : cases) {
    EXPECT_EQ(above(read_well(std::string(text)), "n"), chain) << text;
  }
  EXPECT_EQ(read_well("Foo=bar\nSwitchName=s Color=red Nodes=n\n").notes,
            (std::vector<std::string>{"net: line 1: Foo is unknown, and left out",
                                      "net: line 2: Color is unknown, and left out"}));
}

TEST(Fabric, ChoosesOneOfSeveralParents) {
  // Hosts of two rails, one of which lacks a cable; leaves below two spines, one lacks a link.
  const Fabric fabric = read_well(
      "SwitchName=rail0 Nodes=n[1-3]\nSwitchName=rail1 Nodes=n[1-4]\nSwitchName=other Nodes=n5\n"
      "SwitchName=spine1 Switches=rail0,rail1\nSwitchName=spine2 Switches=rail[0-1],other\n");
  for (const std::string_view host : {"n1", "n2", "n3", "n4"}) {
    EXPECT_EQ(above(fabric, host), "rail1 spine2");
  }
  EXPECT_EQ(above(fabric, "n5"), "other spine2");
  EXPECT_EQ(fabric.notes,
            (std::vector<std::string>{
                "net: hosts below several switches: 3, such as n1 below rail0 and rail1; each "
                "counts as below the one with the most hosts",
                "net: switches below several others: 2, such as rail0 below spine1 and spine2; "
                "each counts as below the one with the most switches"}));
}

TEST(Fabric, ReadsIbnetdiscover) {
  const Fabric fabric = read_well(fixture("ibnetdiscover.txt"));
  EXPECT_EQ(fabric.format, FabricFormat::kIbnetdiscover);
  EXPECT_TRUE(fabric.notes.empty());
  EXPECT_EQ(above(fabric, "node01"), "cell1leaf1 group 1 network");
  EXPECT_EQ(above(fabric, "node04.cluster"), "cell1leaf2 group 1 network");
  EXPECT_EQ(above(fabric, "node08"), "cell2leaf2 group 2 network");
  EXPECT_EQ(fabric.hosts.front().up, (Bandwidth{25, Origin::kReported}));
  EXPECT_EQ(fabric.at(fabric.above("node01")[1]).up, (Bandwidth{25, Origin::kReported}));
  EXPECT_FALSE(fabric.at(fabric.above("node01")[2]).up.known());
  EXPECT_EQ(to_chain(fabric, "node03"), "node03, 25.0 GB/s up: cell1leaf2, group 1, network\n");
}

/// Writer of the lines that ibnetdiscover has for switches.
struct Cables {
  std::map<std::string, std::string> ports; ///< lines of each switch
  std::map<std::string, int> used;

  void connect(const std::string& a, const std::string& b, const std::string& description,
               const std::string& rate = "4xNDR") {
    ports[a] += fmt::format("[{}] \"{}\"[{}] # \"{}\" lid 1 {}\n", ++used[a], b, ++used[b],
                            description, rate);
  }
  std::string text() const {
    std::string text;
    for (const auto& [id, lines] : ports) {
      text += fmt::format("Switch 64 \"{0}\" # \"sw-{1}\" base port 0 lid 1 lmc 0\n{2}\n", id,
                          id.substr(2), lines);
    }
    return text;
  }
};

TEST(Fabric, SeesThePodsOfAFatTree) {
  Cables cables;
  for (const char pod : {'a', 'b', 'c'}) {
    for (int leaf = 1; leaf <= 3; ++leaf) {
      const std::string id = fmt::format("S-leaf{}{}", pod, leaf);
      cables.connect(id, fmt::format("H-{}{}", pod, leaf), fmt::format("{}{} HCA-1", pod, leaf));
      for (int spine = 1; spine <= 2; ++spine) {
        // A cable is missing, and a host that manages the network is at a spine.
        if (pod == 'b' && leaf == 2 && spine == 1) continue;
        cables.connect(id, fmt::format("S-spine{}{}", pod, spine), "spine");
      }
    }
    // Each spine has core switches of its own.
    for (int spine = 1; spine <= 2; ++spine) {
      cables.connect(fmt::format("S-spine{}{}", pod, spine), fmt::format("S-core{}", spine),
                     "core");
    }
  }
  cables.connect("S-spinea1", "H-manager", "ufm mlx5_0", "4xHDR");
  const Fabric fabric = read_well(cables.text());
  for (int leaf = 1; leaf <= 3; ++leaf) {
    EXPECT_EQ(above(fabric, fmt::format("a{}", leaf)),
              fmt::format("sw-leafa{} group 1 network", leaf));
    EXPECT_EQ(above(fabric, fmt::format("b{}", leaf)),
              fmt::format("sw-leafb{} group 2 network", leaf));
    EXPECT_EQ(above(fabric, fmt::format("c{}", leaf)),
              fmt::format("sw-leafc{} group 3 network", leaf));
  }
  EXPECT_EQ(above(fabric, "ufm"), "sw-spinea1 group 1 network");
  EXPECT_EQ(fabric.at(fabric.above("c1")[0]).up.gb_per_s, 100);
  EXPECT_EQ(fabric.at(fabric.above("b2")[0]).up.gb_per_s, 50);
  EXPECT_EQ(fabric.at(fabric.above("c1")[1]).up.gb_per_s, 100);
}

TEST(Fabric, KnowsHostsByTheNamesOfAdapters) {
  Cables cables;
  cables.connect("S-1", "H-1", "n1 HCA-1", "4xEDR");
  cables.connect("S-1", "H-2", "n1 HCA-2", "2xHDR s=4 w=16 v=8");
  cables.connect("S-1", "H-3", "n2", "4x???");
  cables.connect("S-1", "H-4", "MT4123 ConnectX6   Mellanox Technologies");
  cables.connect("S-1", "H-5", "MT4123 ConnectX6");
  cables.connect("S-1", "H-6", "Mellanox Technologies Aggregation Node");
  cables.connect("S-1", "R-7", "router 1");
  const Fabric fabric = read_well("ibwarn: [17] no answer\nvendid=0x2c9\n" + cables.text());
  ASSERT_EQ(fabric.hosts.size(), 2);
  EXPECT_EQ(fabric.hosts[0].name, "n1");
  EXPECT_EQ(fabric.hosts[0].up.gb_per_s, 25);
  EXPECT_EQ(fabric.hosts[1].name, "n2");
  EXPECT_FALSE(fabric.hosts[1].up.known());
  EXPECT_EQ(fabric.notes,
            (std::vector<std::string>{
                "net: line 1: \"ibwarn: [17] no answer\" is left out",
                "net: adapters that are not named after their host are left out: 2, such as H-4"}));
}

TEST(Fabric, ReadsYaml) {
#ifdef WHORL_HAVE_YAML
  const Fabric fabric = read_well(fixture("topology.yaml"));
  EXPECT_EQ(fabric.format, FabricFormat::kSlurmYaml);
  EXPECT_EQ(above(fabric, "node01"), "s1 root");
  EXPECT_EQ(above(fabric, "node08"), "s2 root");
  EXPECT_EQ(fabric.notes, std::vector<std::string>{"net: of 2 topologies, all is read"});
  EXPECT_EQ(
      above(read_well("- {topology: a, block: {blocks: [{block: b, nodes: 'n[1-2]'}]}}"), "n2"),
      "b");
#else
  const auto fabric = read_fabric(fixture("topology.yaml"), "net");
  ASSERT_FALSE(fabric.ok());
  EXPECT_THAT(fabric.status().message(), HasSubstr("net: this is YAML"));
#endif
}

#ifdef WHORL_HAVE_YAML
TEST(Fabric, ChoosesTheDefaultTopologyOfYaml) {
  const std::string tree = "  tree:\n    switches:\n      - switch: s\n        nodes: n\n";
  const std::string block = "  block:\n    blocks:\n      - block: b\n        nodes: n\n";
  const std::string chosen = "  cluster_default: True\n";
  const std::string a = "- topology: a\n", b = "- topology: b\n";
  EXPECT_EQ(above(read_well(a + block + b + tree), "n"), "s");
  EXPECT_EQ(above(read_well(a + chosen + block + b + tree), "n"), "b");
  EXPECT_EQ(above(read_well(a + "  flat: true\n" + chosen + b + block), "n"), "b");
}

TEST(Fabric, RefusesYamlWithASentence) {
  const std::string head = "- topology: t\n  tree:\n    switches:\n      - switch: s\n";
  const std::pair<std::string, std::string_view> cases[] = {
      {"---\n", "a file is a list"},
      {"{}", "a file is a list"},
      {"- 1", "keys and values"},
      {"- topology: a\n  flat: true\n", "no topology is a tree or block"},
      {"- topology: a\n  tree: {}\n", "line 2: switches are missing"},
      {"- topology: a\n  tree: {switches: 1}\n", "line 2: switches are a list"},
      {"- topology: a\n  tree:\n  block:\n", "and not both"},
      {"- {topology: [a]}", "here belongs a word"},
      {head + "        nodes: [a, b]\n", "line 5: here belongs a word"},
      {head + "        nodes: n[0-999999999]\n", "line 4: a list of names has more names"},
      {head + "        nodes: n\n        nodes: m\n", "line 6: nodes comes twice"},
      {head + "      - switch: s\n", "line 5: s is defined already, in line 4"},
      {head + "        children: s\n        nodes: n\n", "below itself"},
      {head + "      - nodes: n\n", "\"\" is no name"},
      {"- &a [*a]", "aliases are not read"},
      {"- [*a]", "line 1: not well-formed YAML: "},
      {"- a: b: c\n", "not well-formed YAML"},
      {"- [\n", "not well-formed YAML"},
      {head + "        nodes: n\n---\n- b\n", "a second document is not read"},
      {std::string(100, '['), "nested too deep"},
      {std::string((4U << 20) + 1, '['), "too large; of YAML 4 MiB"},
      {"- " + std::string(100'000, '{'), "nested too deep"},
  };
  for (const auto& [text, sentence] : cases) {
    const auto fabric = read_fabric(text, "net");
    ASSERT_FALSE(fabric.ok()) << text;
    EXPECT_THAT(fabric.status().message(), HasSubstr(sentence)) << text.substr(0, 200);
  }
}
#endif

TEST(Fabric, ReadsAMapOfHosts) {
  const Fabric fabric = read_well(fixture("hosts.map"));
  EXPECT_EQ(fabric.format, FabricFormat::kMap);
  EXPECT_EQ(above(fabric, "n2"), "s10 c1");
  EXPECT_EQ(above(fabric, "n4"), "s20 c2");
  // The same names in several columns are several switches.
  EXPECT_EQ(above(read_well("n 1 1 1"), "n"), "1 1 1");
}

/// Files, and a part of the error of each.
using Refusals = std::vector<std::pair<std::string, std::string_view>>;

void expect_refusals(const Refusals& refusals) {
  for (const auto& [text, sentence] : refusals) {
    const auto fabric = read_fabric(text, "net");
    ASSERT_FALSE(fabric.ok()) << text.substr(0, 200);
    EXPECT_THAT(fabric.status().message(), HasSubstr(sentence)) << text.substr(0, 200);
  }
}

TEST(Fabric, RefusesWithASentence) {
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += fmt::format("SwitchName=s{} Switches=s{}\n", i + 1, i);
  expect_refusals({
      {"", "net: the file names no host"},
      {"# nothing\n", "net: the file names no host"},
      {"SwitchName=s\n", "net: the file names no host"},
      {"SwitchName=s Nodes=n\nSwitchName=s Nodes=m\n", "line 2: s is defined already, in line 1"},
      {"SwitchName=s Nodes=n Nodes=m\n", "line 1: Nodes comes twice"},
      {"SwitchName=s Nodes=n Switches=t\n", "line 1: the switch t is not defined"},
      {"SwitchName=s Nodes=n Switches=s\n", "line 1: a switch is below itself: s above s"},
      {"SwitchName=a Switches=b\nSwitchName=b Switches=c\nSwitchName=c Switches=b Nodes=n\n",
       "line 2: a switch is below itself: b above c above b"},
      {deep + "SwitchName=s0 Nodes=n\n", " has more than 31 switches above it"},
      {"SwitchName=s Nodes\n", "line 1: \"Nodes\" is no \"Key=value\""},
      {"SwitchName=s Nodes=\"n\n", "is no \"Key=value\""},
      {"SwitchName=\"a b\" Nodes=n\n", "\"a b\" is no name"},
      {"SwitchName=\n", "\"\" is no name"},
      {"SwitchName=s Nodes=n[0-999999999]\n", "line 1: a list of names has more names"},
      {"SwitchName=s Nodes=n\n\nInclude other\n", "line 3: Include is not followed"},
      {"SwitchName=s Nodes=n\nSwitchName=t Nodes=\xff\n", "line 2: the byte 0xff is no text"},
      {std::string("SwitchName=s Nodes=n\0", 21), "line 1: the byte 0x00"},
      {"SwitchName=s Nodes=\xc0\xaf\n", "the byte 0xc0"},
      {"SwitchName=s Nodes=\xed\xa0\x80\n", "the byte 0xed"},
      {"SwitchName=s Nodes=\xe2\x82", "the byte 0xe2"},
      {"Switch 36 S-1\n", "line 1: after Switch belongs"},
      {"Ca 1 \"S-1\" # \"n1 HCA-1\"\n", "after Ca belongs"},
      {"vendid=0x2c9\n[1] \"S-1\"[2]\n", "line 2: this is no port of a device"},
      {"Switch 3 \"S-1\"\n[x] \"S-1\"[2]\n", "line 2: this is no port"},
      {"Switch 3 \"S-1\"\nSwitch 3 \"S-1\"\n", "line 2: S-1 is described already, in line 1"},
      {"Switch 3 \"S-1\"\n[1] \"H-1\"[1] # \"n1\"\n[1] \"H-2\"[1] # \"n2\"\n",
       "line 3: port 1 of S-1 leads elsewhere than in line 2"},
      {"Switch 3 \"S-1\"\n[1] \"S-2\"[1]\n", "net: the file names no host"},
      {"n1 s1\nn1 s2\n", "line 2: the host n1 is in line 1 already"},
      {"n1 s1 g1\nn2 s1 g2\n", "line 2: s1 is below g2 here, and below g1 in line 1"},
      {"n1 s1\nn2 s1 g1\n", "line 2: this is no file of Slurm or ibnetdiscover"},
      {"hello\n", "line 1: this is no file of Slurm or ibnetdiscover"},
      {"n1 1 2 3 4 5 6 7 8\n", "at most 7"},
      {"<system version=\"1\">\n", "line 1: this is no file of Slurm"},
  });
}

TEST(FabricFull, RefusesWhatIsTooLarge) {
  expect_refusals({
      {"SwitchName=s Nodes=n[0-999999]\nSwitchName=t Nodes=m\n", "line 2: a list of names"},
      {std::string((64U << 20) + 1, '\n'), "net: the file is too large"},
  });
}

TEST(Fabric, DoesNotDependOnTheOrderOfLines) {
  const std::pair<std::string, std::string> cases[] = {
      {"SwitchName=rail0 Nodes=n[1-3]\nSwitchName=rail1 Nodes=n[1-4]\nSwitchName=x Nodes=n5\n"
       "SwitchName=s1 Switches=rail[0-1]\nSwitchName=s2 Switches=rail[0-1],x\n",
       "\n"},
      {fixture("topology_blocks.conf"), "\n"},
      {fixture("hosts.map"), "\n"},
      {fixture("ibnetdiscover.txt"), "\n\n"},
  };
  for (const auto& [text, separator] : cases) {
    const Fabric fabric = read_well(text);
    for (unsigned seed = 0; seed < 20; ++seed) {
      EXPECT_EQ(read_well(shuffled_parts(text, separator, seed)), fabric) << text << seed;
    }
  }
}

TEST(Fabric, ReadsManyHosts) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += fmt::format("SwitchName=s{0} Nodes=n{0}-[0-99]\n", i);
  const Fabric fabric = read_well(text);
  EXPECT_EQ(fabric.hosts.size(), 100'000);
  EXPECT_EQ(above(fabric, "n777-42"), "s777");
}

} // namespace
} // namespace whorl::topology
