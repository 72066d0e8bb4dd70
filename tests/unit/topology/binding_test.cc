#include "topology/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "machines.h"

namespace whorl::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> cpus_of(const std::vector<Binding>& bindings) {
  std::vector<std::string> cpus;
  for (const Binding& it : bindings) cpus.push_back(it.cpus.ranges());
  return cpus;
}

std::vector<std::string> bind(const Graph& graph, int ranks) {
  return cpus_of(bind_ranks(graph, ranks));
}

TEST(Binding, SpreadsRanksOverTheMachine) {
  // Four NUMA nodes of eight cores in each of two packages.
  const Graph graph = processors({.packages = 2, .numas = 4, .cores = 8});
  EXPECT_THAT(bind(graph, 1), ElementsAre("0-63"));
  EXPECT_THAT(bind(graph, 2), ElementsAre("0-31", "32-63"));
  EXPECT_THAT(bind(graph, 4), ElementsAre("0-15", "16-31", "32-47", "48-63"));
  EXPECT_THAT(bind(graph, 8),
              ElementsAre("0-7", "8-15", "16-23", "24-31", "32-39", "40-47", "48-55", "56-63"));
  // A rank in both packages would have 21 cores.
  EXPECT_THAT(bind(graph, 3), ElementsAre("0-15", "16-31", "32-47"));
  // Twelve cores would be in two NUMA nodes.
  EXPECT_THAT(bind(graph, 5), ElementsAre("0-7", "8-15", "24-31", "32-39", "48-55"));
  EXPECT_EQ(bind_ranks(graph, 64).back().cores, 1);
}

TEST(Binding, KeepsRanksInCaches) {
  const Graph graph = processors({.numas = 2, .caches = 3, .cores = 4});
  EXPECT_THAT(bind(graph, 6), ElementsAre("0-3", "4-7", "8-11", "12-15", "16-19", "20-23"));
  EXPECT_THAT(bind(graph, 4), ElementsAre("0-3", "4-7", "12-15", "16-19"));
  EXPECT_EQ(graph.at(bind_ranks(graph, 6)[4].part).kind, NodeKind::kCache);
}

TEST(Binding, TakesOddNumbers) {
  const Graph seven = processors({.numas = 7, .cores = 8});
  EXPECT_THAT(bind(seven, 2), ElementsAre("0-23", "24-47")); // three whole NUMA nodes each
  EXPECT_THAT(bind(seven, 7).back(), "48-55");
  EXPECT_THAT(bind(seven, 3), ElementsAre("0-15", "16-31", "32-47"));
  EXPECT_THAT(bind(processors({.cores = 7}), 3), ElementsAre("0-1", "2-3", "4-5"));
  EXPECT_THAT(binding_notes(seven, bind_ranks(seven, 2)),
              ElementsAre(HasSubstr("8 of 56 cores are left over")));
  EXPECT_THAT(binding_notes(seven, bind_ranks(seven, 7)), IsEmpty());
}

TEST(Binding, GivesCoresWithTheirHyperthreads) {
  const Graph graph = processors({.cores = 4, .threads = 2});
  EXPECT_THAT(bind(graph, 2), ElementsAre("0-1,4-5", "2-3,6-7"));
  const std::vector<Binding> bindings = bind_ranks(graph, 6);
  EXPECT_THAT(cpus_of(bindings), ElementsAre("0", "4", "1", "5", "2", "6"));
  EXPECT_TRUE(bindings[0].shared);
  EXPECT_THAT(binding_notes(graph, bindings),
              ElementsAre(HasSubstr("There are 6 ranks and 4 cores: ranks share cores")));
}

TEST(Binding, SaysThatThereAreTooFewProcessors) {
  const Graph graph = processors({.cores = 1});
  const std::vector<Binding> bindings = bind_ranks(graph, 3);
  EXPECT_THAT(cpus_of(bindings), ElementsAre("0", "0", "0"));
  EXPECT_TRUE(bindings[2].shared);
  EXPECT_THAT(binding_notes(graph, bindings),
              ElementsAre(HasSubstr("There are 3 ranks and 1 CPUs: ranks share CPUs")));
  EXPECT_FALSE(bind_ranks(graph, 1).front().shared);
}

TEST(Binding, FollowsGpus) {
  // Three GPUs: the first at one processor, the other two at the other one.
  const Graph graph = read_machine(nccl_machine(3, {}));
  const std::vector<Binding> bindings = bind_ranks(graph, 3);
  EXPECT_THAT(cpus_of(bindings), ElementsAre("0-15", "32-47", "48-63"));
  for (int rank = 0; rank < 3; ++rank) {
    const Binding& it = bindings[static_cast<std::size_t>(rank)];
    EXPECT_EQ(it.gpu, gpu(graph, rank));
    ASSERT_EQ(it.nics.size(), 1);
    EXPECT_EQ(graph.at(it.nics.front()).index, rank);
  }
  // More ranks than GPUs.
  EXPECT_THAT(bind(graph, 4), ElementsAre("0-15", "16-31", "32-47", "48-63"));
  EXPECT_EQ(bind_ranks(graph, 4).front().gpu, -1);
  EXPECT_THAT(binding_notes(graph, bind_ranks(graph, 4)),
              ElementsAre("There are 4 ranks and 3 GPUs, so no rank is given one."));
}

TEST(Binding, FindsProcessorsForGpusWithout) {
  Graph graph = processors({.packages = 2, .numas = 2, .cores = 4});
  // A NUMA node without processors, as in jobs that were given a part of the machine.
  const int package = graph.all(NodeKind::kPackage).back();
  graph.nodes.push_back({.kind = NodeKind::kNuma, .parent = package, .index = 4});
  graph.nodes.push_back(
      {.kind = NodeKind::kGpu, .parent = static_cast<int>(graph.nodes.size()) - 1});
  normalize(graph);
  const std::vector<Binding> bindings = bind_ranks(graph, 1);
  EXPECT_EQ(bindings.front().cpus.ranges(), "8-15"); // the package
  EXPECT_THAT(binding_notes(graph, bindings),
              ElementsAre(HasSubstr("8 of 16 cores are left over"),
                          "Rank 0 is on processors far from GPU0: NUMA node 4 of this GPU has "
                          "none."));
  EXPECT_THAT(bind(graph, 4), ElementsAre("0-3", "4-7", "8-11", "12-15"));
}

TEST(Binding, SharesNicsOut) {
  Graph graph = processors({.packages = 2, .cores = 4});
  const std::vector<int> numas = graph.all(NodeKind::kNuma);
  for (int nic = 0; nic < 4; ++nic) {
    graph.nodes.push_back({.kind = NodeKind::kNic,
                           .parent = numas[nic < 2 ? 0 : 1],
                           .name = "mlx5_" + std::to_string(nic),
                           .rdma = true,
                           .down = nic == 3});
  }
  normalize(graph);
  const auto nics = [&](int ranks) {
    std::vector<std::vector<int>> numbers;
    for (const Binding& it : bind_ranks(graph, ranks)) {
      numbers.emplace_back();
      for (const int nic : it.nics) numbers.back().push_back(graph.at(nic).index);
    }
    return numbers;
  };
  EXPECT_THAT(nics(2), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  EXPECT_THAT(nics(4), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(2)));
}

TEST(Binding, NeedsNoProcessors) {
  Graph graph;
  graph.nodes.push_back({.kind = NodeKind::kMachine});
  const std::vector<Binding> bindings = bind_ranks(graph, 2);
  EXPECT_THAT(cpus_of(bindings), ElementsAre("", ""));
  EXPECT_THAT(binding_notes(graph, bindings), ElementsAre(HasSubstr("shows no processors")));
}

} // namespace
} // namespace whorl::topology
