#include "topology/gpu_links.h"

#include <gtest/gtest.h>

#include <string>

#include "machines.h"
#include "topology/paths.h"

namespace whorl::topology {
namespace {

using End = gpu::NvLink::End;

/// Returns `count` links of a version.
std::vector<gpu::NvLink> some(unsigned count, unsigned version, End end, const std::string& peer) {
  std::vector<gpu::NvLink> links;
  for (unsigned i = 0; i < count; ++i) {
    links.push_back({.link = i, .version = version, .end = end, .peer_bus_id = peer});
  }
  return links;
}

TEST(GpuLinks, ConnectGpusThatTheGraphShows) {
  Graph graph = read_machine(nccl_machine(2, {}));
  // NVML's numbers are not those of the file.
  gpu::DeviceLinks devices{.bus_ids = {"00000000:20:01.0", "00000000:10:01.0"}};
  devices.links = {some(4, 3, End::kGpu, "00000000:10:01.0"),
                   some(4, 3, End::kGpu, "00000000:20:01.0")};
  add_gpu_links(graph, devices);
  EXPECT_EQ(graph.all(NodeKind::kGpu).size(), 2);
  EXPECT_EQ(graph.at(gpu(graph, 0)).bus_id, "0000:20:01.0");
  const Path path = find_path(graph, gpu(graph, 0), gpu(graph, 1));
  EXPECT_EQ(name_of(path), "NV4");
  EXPECT_EQ(path.bandwidth.gb_per_s, 100);
  const std::vector<Link> before = graph.links;
  add_gpu_links(graph, devices);
  EXPECT_EQ(graph.links, before);
}

TEST(GpuLinks, LeadToSwitches) {
  Graph graph;
  graph.nodes.push_back({.kind = NodeKind::kMachine});
  gpu::DeviceLinks devices{.bus_ids = {"00000000:01:00.0", "00000000:02:00.0"}};
  for (int i = 0; i < 2; ++i) {
    devices.links.push_back(some(10, 7, End::kSwitch, "00000000:c1:00.0"));
    for (const gpu::NvLink& link : some(8, 7, End::kSwitch, "00000000:c2:00.0")) {
      devices.links.back().push_back(link);
    }
  }
  add_gpu_links(graph, devices);
  EXPECT_EQ(graph.all(NodeKind::kNvSwitch).size(), 2);
  const Path path = find_path(graph, gpu(graph, 0), gpu(graph, 1));
  EXPECT_EQ(name_of(path), "NV18");
  EXPECT_EQ(path.bandwidth.gb_per_s, 900);
}

TEST(GpuLinks, MayBeUnknown) {
  Graph graph;
  graph.nodes.push_back({.kind = NodeKind::kMachine});
  gpu::DeviceLinks devices{.bus_ids = {"00000000:01:00.0", "00000000:02:00.0"}};
  devices.links = {some(2, 0, End::kGpu, "00000000:02:00.0"), some(1, 0, End::kOther, "")};
  devices.links[1].push_back({.end = End::kGpu, .peer_bus_id = "00000000:02:00.0"}); // itself
  add_gpu_links(graph, devices);
  ASSERT_EQ(graph.links.size(), 1);
  EXPECT_EQ(graph.links.front().count, 2);
  EXPECT_FALSE(graph.links.front().bandwidth.known());
  EXPECT_EQ(graph.at(gpu(graph, 0)).hidden_links, 0);
  EXPECT_EQ(graph.at(gpu(graph, 1)).hidden_links, 2);
}

} // namespace
} // namespace whorl::topology
