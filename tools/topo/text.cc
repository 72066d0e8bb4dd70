#include "tools/topo/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "base/types.h"
#include "topology/binding.h"
#include "topology/bound.h"
#include "topology/paths.h"
#include "topology/rings.h"
#include "topology/text.h"

namespace whorl::topology {
namespace {

std::string describe_paths(const Graph& graph) {
  std::string matrix = to_matrix(graph);
  if (graph.all(NodeKind::kGpu).size() >= 2 && graph.links.empty()) {
    matrix +=
        "No NVLink, xGMI or Xe Link is described. Virtual machines and files of clouds often leave "
        "links out;\nif the GPUs have some, paths, rings and bounds are those of PCI only.\n";
  }
  return matrix;
}

std::string describe_nics(const Graph& graph) {
  std::string text;
  for (const int gpu : graph.all(NodeKind::kGpu)) {
    const std::vector<int> nics = nearest_nics(graph, gpu);
    if (nics.empty()) {
      text += fmt::format("{}: there is no NIC\n", label(graph, gpu));
      continue;
    }
    const Path path = find_path(graph, gpu, nics.front());
    const bool rated = graph.at(nics.front()).up.known();
    text += fmt::format("{}: {} ({}, {} GB/s{}{})\n", label(graph, gpu), labels(graph, nics),
                        name_of(path), to_text(path.bandwidth), rated ? "" : " to its card",
                        graph.at(nics.front()).down ? ", DOWN" : "");
  }
  return text;
}

std::string describe_rings(const Graph& graph, const std::vector<int>& gpus) {
  constexpr std::array<const char*, 3> kWays = {"links", "the tree", "links and the tree"};
  std::string text;
  for (const Ring& ring : find_rings(graph, gpus)) {
    text += fmt::format("{} × {} GB/s over {}: {}\n", ring.copies, to_text(ring.bandwidth),
                        kWays.at(static_cast<std::size_t>(ring.way)), labels(graph, ring.order));
  }
  return text;
}

std::string describe_bounds(const Graph& graph, const std::vector<int>& gpus) {
  std::string text;
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
        Collective::kBroadcast, Collective::kReduce, Collective::kAllToAll, Collective::kGather,
        Collective::kScatter}) {
    const Bound bound = find_bound(graph, gpus, collective);
    if (bound.bus_gb_per_s == 0) {
      text += fmt::format("{:<14} no limit is known\n", name_of(collective));
      continue;
    }
    std::string sets;
    for (const std::vector<int>& set : bound.sets) {
      sets += fmt::format("{}{}", sets.empty() ? "" : " | ", labels(graph, set));
    }
    const Origin origin = bound.by_table ? Origin::kTable : Origin::kReported;
    text += fmt::format("{:<14} {:>8} GB/s of bus bandwidth, limited by what leaves {}\n",
                        name_of(collective), to_text({bound.bus_gb_per_s, origin}), sets);
  }
  return text;
}

} // namespace

std::string describe(const Graph& graph, Parts parts) {
  const bool all = !parts.any();
  const std::vector<int> gpus = graph.all(NodeKind::kGpu);
  std::string text;
  const auto add = [&](bool wanted, const char* title, const auto& describe_part) {
    if (!all && !wanted) return;
    const std::string part = describe_part();
    if (all && !part.empty()) text += fmt::format("\n{}\n", title);
    text += part;
  };
  if (all) text += to_summary(graph) + "\n";
  add(parts.tree, "Parts, with GB/s in each direction (~: usual for such links, not reported here)",
      [&] { return to_tree(graph); });
  add(parts.matrix, "Paths", [&] { return describe_paths(graph); });
  add(parts.nics, "Nearest NICs", [&] { return describe_nics(graph); });
  if (parts.nics && gpus.empty()) text += "There is no GPU.\n";
  if (gpus.size() < 2) {
    if (parts.rings || parts.bound) text += "There are fewer than two GPUs.\n";
    return text;
  }
  add(parts.rings, "Rings of all GPUs", [&] { return describe_rings(graph, gpus); });
  add(parts.bound, "Bounds of collectives among all GPUs",
      [&] { return describe_bounds(graph, gpus); });
  return text;
}

std::string describe_binding(const Graph& graph, int ranks) {
  const std::vector<Binding> bindings = bind_ranks(graph, ranks);
  std::vector<std::vector<std::string>> rows = {{"rank", "CPUs", "cores", "in", "GPU", "NICs"}};
  const bool gpus = bindings.front().gpu >= 0;
  for (std::size_t rank = 0; rank < bindings.size(); ++rank) {
    const Binding& it = bindings[rank];
    rows.push_back({fmt::format("{}", rank), it.cpus.empty() ? "?" : it.cpus.ranges(),
                    fmt::format("{}{}", it.cores, it.shared ? ", shared" : ""),
                    label(graph, it.part), gpus ? label(graph, it.gpu) : "-",
                    it.nics.empty() ? "-" : labels(graph, it.nics)});
  }
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      text += fmt::format("{:<{}}", row[i], widths[i] + 2);
    }
    text += row.back() + "\n";
  }
  text += "\n";
  for (std::size_t rank = 0; rank < bindings.size(); ++rank) {
    if (bindings[rank].cpus.empty()) continue;
    text += fmt::format("taskset -c {} PROGRAM  # rank {}\n", bindings[rank].cpus.ranges(), rank);
  }
  const std::vector<std::string> notes = binding_notes(graph, bindings);
  if (!notes.empty()) text += "\n";
  for (const std::string& note : notes) text += note + "\n";
  return text;
}

} // namespace whorl::topology
