#include "topology/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "machines.h"

namespace whorl::topology {
namespace {

using testing::HasSubstr;

TEST(Text, HasALineForEqualLinksOfAGpu) {
  std::string xml = "<system><cpu numaid=\"0\">";
  for (int g = 1; g <= 2; ++g) {
    xml += "<pci busid=\"0" + std::to_string(g) + ":00.0\"><gpu sm=\"80\">";
    for (int to = 0; to < 3; ++to) {
      xml += "<nvlink target=\"c" + std::to_string(to) + ":00.0\" count=\"" + (to < 2 ? "4" : "2") +
             "\" tclass=\"0x068000\"/>";
    }
    xml += "</gpu></pci>";
  }
  const std::string tree = to_tree(read_machine(xml + "</cpu></system>"));
  EXPECT_THAT(tree, HasSubstr("\nGPU0 - NVSwitch 0, NVSwitch 1: 4 × NVLink, ~100.0 GB/s each\n"));
  EXPECT_THAT(tree, HasSubstr("\nGPU1 - NVSwitch 2: 2 × NVLink, ~50.0 GB/s\n"));
}

TEST(Text, HasNoControlCharactersOfNames) {
  const std::string tree = to_tree(read_machine(
      "<system><cpu numaid=\"0\"><nic><net name=\"&#27;[2J&#10;x\"/></nic></cpu></system>"));
  EXPECT_THAT(tree, HasSubstr("NIC0 (?[2J?x)"));
}

TEST(Text, ShowsHiddenLinks) {
  const std::string tree = to_tree(
      read_machine("<system><cpu numaid=\"0\"><pci busid=\"01:00.0\"><gpu sm=\"80\"><nvlink "
                   "target=\"01:00.0\" count=\"12\"/></gpu></pci></cpu></system>"));
  EXPECT_THAT(tree, HasSubstr("GPU0 0000:01:00.0, ? GB/s, 12 links to hidden ends\n"));
}

TEST(Text, NamesPortsAsInTheListOfNics) {
  const std::string matrix = to_matrix(
      read_machine("<system><cpu numaid=\"0\"><pci busid=\"01:00.0\"><nic><net name=\"mlx5_0\" "
                   "port=\"1\"/><net name=\"mlx5_0\" port=\"2\"/></nic></pci></cpu></system>"));
  EXPECT_THAT(matrix, HasSubstr("\nNIC0: mlx5_0\nNIC1: mlx5_0:2\n"));
}

TEST(Text, NamesLinksOfEachKind) {
  Path path{.path_class = PathClass::kLink, .kind = LinkKind::kXeLink, .links = 2};
  EXPECT_EQ(links_text(path), "2 Xe Links (? GB/s)");
  path.kind = LinkKind::kXgmi;
  EXPECT_EQ(links_text(path), "2 xGMI links (? GB/s)");
  path.path_class = PathClass::kSys;
  path.kind = LinkKind::kXeLink;
  EXPECT_EQ(links_text(path), "no Xe Link");
}

} // namespace
} // namespace whorl::topology
