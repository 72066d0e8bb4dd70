#include "machines.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <pugixml.hpp>
#include <random>
#include <set>
#include <sstream>

#include "topology/hwloc_xml.h"
#include "topology/nccl_xml.h"
#include "topology/paths.h"
#include "topology/text.h"
#include "topology/text_file.h"
#include "topology/xml.h"

namespace whorl::topology {
namespace {

void shuffle(pugi::xml_node element, std::mt19937& random) {
  std::vector<pugi::xml_node> children(element.begin(), element.end());
  // Not std::shuffle(), whose result depends on the library.
  for (std::size_t i = children.size(); i > 1; --i)
    std::swap(children[i - 1], children[random() % i]);
  for (const pugi::xml_node child : children) {
    shuffle(child, random);
    if (child.type() == pugi::node_element) element.append_move(child);
  }
}

/// Sums of what rings send over each part of a machine.
class Loads {
 public:
  explicit Loads(const Graph& graph) : graph_(graph) {}

  /// Adds a hop of a ring, on the way of find_path().
  void add(int from, int to, const Ring& ring) {
    const Path direct = direct_links(graph_, from, to);
    const Path out = switch_links(graph_, from), in = switch_links(graph_, to);
    if (direct.path_class != PathClass::kSys) {
      load(from, to, direct.bandwidth, ring);
      if (ring.way == RingWay::kLinks && !ring.bandwidth.known()) {
        int& uses = uses_[{from, to}];
        uses += ring.copies;
        EXPECT_LE(uses, std::max(direct.links, 1));
      }
    } else if (out.path_class == PathClass::kLink && in.path_class == PathClass::kLink) {
      constexpr int kSwitches = -1;
      load(from, kSwitches, out.bandwidth, ring);
      load(kSwitches, to, in.bandwidth, ring);
    } else {
      const int top = graph_.common(from, to);
      while (from != top) {
        const Edge up = edge_up(graph_, graph_.links, from, top);
        load(from, up.to, up.bandwidth, ring);
        from = up.to;
      }
      while (to != top) {
        const Edge up = edge_up(graph_, graph_.links, to, top);
        load(up.to, to, up.bandwidth, ring);
        to = up.to;
      }
    }
  }

  /// Checks that no part carries more than its capacity.
  void check() const {
    for (const auto& [ends, load] : loads_) {
      EXPECT_LE(load.sum, load.capacity * 1.000001) << ends.first << " to " << ends.second;
    }
  }

 private:
  struct Load {
    double sum = 0, capacity = 0;
  };

  void load(int from, int to, const Bandwidth& bandwidth, const Ring& ring) {
    if (!bandwidth.known()) return;
    EXPECT_TRUE(ring.bandwidth.known()) << from << " to " << to;
    Load& load = loads_[{from, to}];
    load.sum += ring.copies * ring.bandwidth.gb_per_s;
    load.capacity = bandwidth.gb_per_s;
  }

  const Graph& graph_;
  std::map<std::pair<int, int>, Load> loads_;
  std::map<std::pair<int, int>, int> uses_;
};

} // namespace

std::string nccl_machine(int gpus, const std::vector<GpuLink>& links,
                         const std::string& gpu_attributes) {
  std::string text = "<system version=\"1\">\n";
  for (int numa = 0; numa < 2; ++numa) {
    text += fmt::format(
        "<cpu numaid=\"{}\" affinity=\"{}\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" "
        "modelid=\"85\">\n",
        numa, numa == 0 ? "00000000,ffffffff" : "ffffffff,00000000");
    for (int g = gpus / 2 * numa; g < (numa == 0 ? gpus / 2 : gpus); ++g) {
      const auto pci = [&](int device, const char* kind, const char* end) {
        return fmt::format(
            "<pci busid=\"0000:{:x}0:0{}.0\" class=\"{}\" link_speed=\"8 GT/s\" "
            "link_width=\"16\"{}>\n",
            g + 1, device, kind, end);
      };
      text += pci(0, "0x060400", "") + pci(1, "0x030200", "");
      text += fmt::format("<gpu dev=\"{}\" {}>\n", g, gpu_attributes);
      for (const GpuLink& link : links) {
        if (link.a != g && link.b != g) continue;
        text +=
            fmt::format("<nvlink target=\"0000:{:x}0:01.0\" count=\"{}\" tclass=\"0x030200\"/>\n",
                        (link.a == g ? link.b : link.a) + 1, link.count);
      }
      text += "</gpu></pci>\n" + pci(2, "0x020700", "") +
              fmt::format(
                  "<nic><net name=\"mlx5_{0}\" dev=\"{0}\" speed=\"100000\" port=\"1\" "
                  "guid=\"0x{0}1\"/></nic></pci>\n</pci>\n",
                  g);
    }
    text += "</cpu>\n";
  }
  return text + "</system>\n";
}

std::vector<GpuLink> cube_mesh() {
  return {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
          {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};
}

std::string fixture(const std::string& name) {
  const char* const root = std::getenv("WHORL_SOURCE_ROOT");
  const auto text =
      read_text_file(fmt::format("{}/tests/fixtures/{}", root == nullptr ? "." : root, name));
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? *text : "";
}

Graph processors(const Sizes& sizes) {
  Graph graph;
  graph.nodes.push_back({.kind = NodeKind::kMachine});
  const int caches = std::max(sizes.caches, 1);
  const int cores = sizes.packages * sizes.numas * caches * sizes.cores;
  std::map<NodeKind, int> last; // part that is being filled
  last[NodeKind::kMachine] = 0;
  const auto begin = [&](NodeKind kind, NodeKind around, int index) {
    graph.nodes.push_back({.kind = kind, .parent = last[around], .index = index});
    last[kind] = static_cast<int>(graph.nodes.size()) - 1;
  };
  for (int core = 0; core < cores; ++core) {
    const int in_cache = sizes.cores, in_numa = in_cache * caches,
              in_package = in_numa * sizes.numas;
    if (core % in_package == 0) begin(NodeKind::kPackage, NodeKind::kMachine, core / in_package);
    if (core % in_numa == 0) begin(NodeKind::kNuma, NodeKind::kPackage, core / in_numa);
    if (sizes.caches == 0) last[NodeKind::kCache] = last[NodeKind::kNuma];
    if (sizes.caches > 0 && core % in_cache == 0) {
      begin(NodeKind::kCache, NodeKind::kNuma, core / in_cache);
    }
    begin(NodeKind::kCore, NodeKind::kCache, core);
    for (int thread = 0; thread < sizes.threads; ++thread) {
      for (int at = last[NodeKind::kCore]; at >= 0; at = graph.at(at).parent) {
        graph.at(at).cpus.add(static_cast<unsigned>(core + thread * cores));
      }
    }
  }
  normalize(graph);
  return graph;
}

Graph read_machine(const std::string& xml) {
  auto graph = read_xml(xml, "machine.xml");
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return graph.ok() ? *std::move(graph) : Graph();
}

int gpu(const Graph& graph, int index) {
  const std::vector<int> gpus = graph.all(NodeKind::kGpu);
  return gpus.at(static_cast<std::size_t>(index));
}

std::string shuffled(const std::string& xml, unsigned seed) {
  pugi::xml_document document;
  EXPECT_TRUE(document.load_string(xml.c_str()));
  std::mt19937 random(seed);
  shuffle(document.document_element(), random);
  std::ostringstream text;
  document.save(text);
  return text.str();
}

void expect_equal(const Graph& graph, const Graph& expected) {
  EXPECT_EQ(graph.nodes.size(), expected.nodes.size());
  for (std::size_t i = 0; i < std::min(graph.nodes.size(), expected.nodes.size()); ++i) {
    const int node = static_cast<int>(i);
    if (graph.at(node) == expected.at(node)) continue;
    ADD_FAILURE() << "node " << i << ": " << label(graph, node) << ", expected "
                  << label(expected, node) << "\n"
                  << to_tree(graph) << "expected\n"
                  << to_tree(expected);
    return;
  }
  EXPECT_EQ(graph.links, expected.links);
  EXPECT_EQ(graph, expected);
}

void expect_kept(Graph graph) {
  Graph from_nccl = read_machine(write_nccl_xml(graph));
  Graph from_hwloc = read_machine(write_hwloc_xml(graph));
  Graph& again = graph.source == Source::kNccl ? from_nccl : from_hwloc;
  graph.notes.clear();
  again.notes.clear();
  expect_equal(again, graph);
}

int check_rings(const Graph& graph, const std::vector<Ring>& rings) {
  const std::vector<int> gpus = graph.all(NodeKind::kGpu);
  Loads loads(graph);
  int count = 0;
  for (const Ring& ring : rings) {
    EXPECT_EQ(std::set<int>(ring.order.begin(), ring.order.end()),
              std::set<int>(gpus.begin(), gpus.end()));
    EXPECT_EQ(ring.order.size(), gpus.size());
    EXPECT_GE(ring.copies, 1);
    EXPECT_TRUE(!ring.bandwidth.known() || ring.bandwidth.gb_per_s > 0);
    count += ring.copies;
    for (std::size_t i = 0; i < ring.order.size(); ++i) {
      loads.add(ring.order[i], ring.order[(i + 1) % ring.order.size()], ring);
    }
  }
  loads.check();
  return count;
}

double sum_of(const std::vector<Ring>& rings) {
  double sum = 0;
  for (const Ring& ring : rings) sum += ring.copies * ring.bandwidth.gb_per_s;
  return sum;
}

} // namespace whorl::topology
