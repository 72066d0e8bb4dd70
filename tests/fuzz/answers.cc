#include <algorithm>
#include <cmath>
#include <pugixml.hpp>
#include <string>
#include <vector>

#include "machine.h"
#include "target.h"
#include "topology/binding.h"
#include "topology/bound.h"
#include "topology/check.h"
#include "topology/diff.h"
#include "topology/hwloc_xml.h"
#include "topology/json.h"
#include "topology/nccl_xml.h"
#include "topology/placement.h"
#include "topology/rings.h"
#include "topology/svg.h"
#include "topology/text.h"
#include "topology/xml.h"

namespace whorl::fuzz {
namespace {

using topology::Graph;

void show(const Graph& graph) {
  topology::to_summary(graph);
  require(!topology::to_tree(graph).empty(), "a tree");
  topology::to_matrix(graph);
  // JSON contains rings and bounds, which take long for many GPUs.
  constexpr std::size_t kFew = 2;
  if (graph.all(topology::NodeKind::kGpu).size() <= kFew) topology::to_json(graph);
  pugi::xml_document picture;
  require(static_cast<bool>(picture.load_string(topology::to_svg(graph).c_str())), "a picture");
}

void find_limits(const Graph& graph) {
  const std::vector<int> gpus = graph.all(topology::NodeKind::kGpu);
  if (gpus.size() < 2) return;
  for (int c = 0; c < kNumCollectives; ++c) {
    const auto bound = topology::find_bound(graph, gpus, static_cast<Collective>(c));
    require(std::isfinite(bound.bus_gb_per_s) && bound.bus_gb_per_s >= 0, "a bandwidth");
  }
  const std::vector<topology::Ring> rings = topology::find_rings(graph, gpus);
  require(!rings.empty(), "a ring");
  for (topology::Ring ring : rings) {
    std::sort(ring.order.begin(), ring.order.end());
    require(ring.copies > 0 &&
                std::is_permutation(gpus.begin(), gpus.end(), ring.order.begin(), ring.order.end()),
            "rings through all GPUs");
  }
}

void bind(const Graph& graph, int ranks) {
  const std::vector<topology::Binding> bindings = topology::bind_ranks(graph, ranks);
  require(bindings.size() == static_cast<std::size_t>(ranks), "a place for each rank");
  for (const topology::Binding& it : bindings) {
    require(it.cpus.empty() == bindings.front().cpus.empty(), "processors for all or none");
    topology::find_placement(graph, it.cpus);
    topology::find_near_nic(graph, it.cpus);
  }
  topology::binding_notes(graph, bindings);
}

/// Compares a machine with itself, and with what the other form of XML shows of it.
void compare(const Graph& graph) {
  require(topology::diff(graph, graph, "a", "b").empty(), "no difference to itself");
  const bool nccl = graph.source == topology::Source::kNccl;
  const auto other = topology::read_xml(
      nccl ? topology::write_hwloc_xml(graph) : topology::write_nccl_xml(graph), "other");
  if (!other.ok()) return; // the other targets require that it is
  topology::diff(graph, *other, "a", "b");
  topology::diff(*other, graph, "b", "a");
}

} // namespace
} // namespace whorl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace whorl::fuzz;
  const auto graph = read_machine(data, size);
  if (!graph) return 0;
  show(*graph);
  find_limits(*graph);
  whorl::topology::check(*graph);
  for (const int ranks : {1, 3, 8, 100}) bind(*graph, ranks);
  compare(*graph);
  return 0;
}
