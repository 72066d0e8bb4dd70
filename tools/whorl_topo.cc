// whorl-topo: shows a machine as whorl sees it, this one or one that a file describes.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "base/types.h"
#include "topology/bound.h"
#include "topology/detect.h"
#include "topology/fabric.h"
#include "topology/fabric_text.h"
#include "topology/hwloc_xml.h"
#include "topology/json.h"
#include "topology/nccl_xml.h"
#include "topology/paths.h"
#include "topology/rings.h"
#include "topology/text.h"
#include "topology/xml.h"

namespace whorl::topology {
namespace {

struct Arguments {
  std::string file, format, fabric, host;
  bool json = false, tree = false, matrix = false, nics = false, rings = false, bound = false;
};

void print_nics(const Graph& graph) {
  for (const int gpu : graph.all(NodeKind::kGpu)) {
    const std::vector<int> nics = nearest_nics(graph, gpu);
    if (nics.empty()) {
      fmt::print("{}: there is no NIC\n", label(graph, gpu));
      continue;
    }
    const Path path = find_path(graph, gpu, nics.front());
    const bool rated = graph.at(nics.front()).up.known();
    fmt::print("{}: {} ({}, {} GB/s{}{})\n", label(graph, gpu), labels(graph, nics), name_of(path),
               to_text(path.bandwidth), rated ? "" : " to its card",
               graph.at(nics.front()).down ? ", DOWN" : "");
  }
}

void print_rings(const Graph& graph, const std::vector<int>& gpus) {
  for (const Ring& ring : find_rings(graph, gpus)) {
    fmt::print("{} × {} GB/s over {}: {}\n", ring.copies, to_text(ring.bandwidth),
               ring.over_links ? "links" : "the tree", labels(graph, ring.order));
  }
}

void print_bounds(const Graph& graph, const std::vector<int>& gpus) {
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
        Collective::kBroadcast, Collective::kReduce, Collective::kAllToAll, Collective::kGather,
        Collective::kScatter}) {
    const Bound bound = find_bound(graph, gpus, collective);
    if (bound.bus_gb_per_s == 0) {
      fmt::print("{:<14} no limit is known\n", name_of(collective));
      continue;
    }
    std::string sets;
    for (const std::vector<int>& set : bound.sets) {
      sets += fmt::format("{}{}", sets.empty() ? "" : " | ", labels(graph, set));
    }
    const Origin origin = bound.by_table ? Origin::kTable : Origin::kReported;
    fmt::print("{:<14} {:>8} GB/s of bus bandwidth, limited by what leaves {}\n",
               name_of(collective), to_text({bound.bus_gb_per_s, origin}), sets);
  }
}

/// Prints the parts of the answer that were asked for, or all of them.
void print_text(const Graph& graph, Arguments wanted) {
  const bool all = !(wanted.tree || wanted.matrix || wanted.nics || wanted.rings || wanted.bound);
  const std::vector<int> gpus = graph.all(NodeKind::kGpu);
  const bool hidden = gpus.size() >= 2 && graph.links.empty();
  const auto title = [&](const char* text) {
    if (all) fmt::print("\n{}\n", text);
  };
  if (all) fmt::print("{}\n", to_summary(graph));
  if (all || wanted.tree) {
    title("Parts, with GB/s in each direction (~: usual for such links, not reported here)");
    fmt::print("{}", to_tree(graph));
  }
  if (all || wanted.matrix) {
    const std::string matrix = to_matrix(graph);
    if (!matrix.empty()) title("Paths");
    fmt::print("{}", matrix);
    if (hidden) {
      fmt::print(
          "No NVLink or xGMI is described. Virtual machines and files of clouds often leave "
          "links out;\nif the GPUs have some, paths, rings and bounds are those of PCI only.\n");
    }
  }
  if (!gpus.empty() && (all || wanted.nics)) {
    title("Nearest NICs");
    print_nics(graph);
  }
  if (gpus.size() < 2) {
    if (wanted.rings || wanted.bound) fmt::print("There are fewer than two GPUs.\n");
  } else {
    if (all || wanted.rings) {
      title("Rings of all GPUs");
      print_rings(graph, gpus);
    }
    if (all || wanted.bound) {
      title("Bounds of collectives among all GPUs");
      print_bounds(graph, gpus);
    }
  }
  std::fflush(stdout);
  for (const std::string& note : graph.notes) fmt::print(stderr, "note: {}\n", note);
}

/// Prints the switches between hosts of a file, or those above one host. Returns the exit status.
int print_fabric(const std::string& file, const std::string& host) {
  const auto fabric = read_fabric_file(file);
  if (!fabric.ok()) {
    fmt::print(stderr, "whorl-topo: {}\n", fabric.status().message());
    return 2;
  }
  for (const std::string& note : fabric->notes) fmt::print(stderr, "note: {}\n", note);
  if (host.empty()) {
    fmt::print("{}\n\n{}", to_summary(*fabric), to_tree(*fabric));
  } else if (fabric->find(host) >= 0) {
    fmt::print("{}", to_chain(*fabric, host));
  } else {
    fmt::print(stderr, "whorl-topo: {}: there is no host {}\n", file, host);
    return 1;
  }
  return 0;
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "Shows a machine as whorl sees it: processors, GPUs, NICs and the links between them.",
      "whorl-topo");
  app.add_option("--file", arguments.file,
                 "describe the machine of this XML file: hwloc's (lstopo machine.xml) or NCCL's "
                 "(NCCL_TOPO_DUMP_FILE)");
  app.add_option("--export", arguments.format, "print the machine as a file of hwloc or of nccl")
      ->check(CLI::IsMember({"hwloc", "nccl"}));
  app.add_flag("--json", arguments.json, "print everything as JSON");
  app.add_flag("--tree", arguments.tree, "print the parts of the machine");
  app.add_flag("--matrix", arguments.matrix, "print the paths between GPUs and NICs");
  app.add_flag("--nics", arguments.nics, "print the nearest NICs of each GPU");
  app.add_flag("--rings", arguments.rings, "print rings through all GPUs");
  app.add_flag("--bound", arguments.bound, "print the best bus bandwidth that links permit");
  auto* const fabric =
      app.add_option("--fabric", arguments.fabric,
                     "show the switches between hosts of this file: Slurm's topology.conf or "
                     "topology.yaml, the output of ibnetdiscover, or a map of hosts");
  app.add_option("--host", arguments.host, "show the switches above this host only")->needs(fabric);
  CLI11_PARSE(app, argc, argv);
  if (!arguments.fabric.empty()) return print_fabric(arguments.fabric, arguments.host);
  Graph graph;
  if (arguments.file.empty()) {
    graph = detect(Detail::kDevices);
  } else {
    auto read = read_xml_file(arguments.file);
    if (!read.ok()) {
      fmt::print(stderr, "whorl-topo: {}\n", read.status().message());
      return 2;
    }
    graph = *std::move(read);
  }
  if (!arguments.format.empty()) {
    fmt::print("{}", arguments.format == "nccl" ? write_nccl_xml(graph) : write_hwloc_xml(graph));
  } else if (arguments.json) {
    fmt::print("{}", to_json(graph));
  } else {
    print_text(graph, arguments);
  }
  return 0;
}

} // namespace
} // namespace whorl::topology

int main(int argc, char** argv) { return whorl::topology::run(argc, argv); }
