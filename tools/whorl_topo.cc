// whorl-topo: shows a machine as whorl sees it, this one or one that a file describes.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tools/cli/app.h"
#include "tools/cli/pages.h"
#include "tools/cli/program.h"
#include "tools/topo/text.h"
#include "topology/check.h"
#include "topology/detect.h"
#include "topology/diff.h"
#include "topology/fabric.h"
#include "topology/fabric_text.h"
#include "topology/hwloc_xml.h"
#include "topology/json.h"
#include "topology/nccl_xml.h"
#include "topology/svg.h"
#include "topology/xml.h"

namespace whorl::topology {
namespace {

/// Exit status, as that of diff.
enum Exit : int { kNothing = 0, kFound = 1, kFailed = 2 };

struct Arguments {
  std::string file, format, other, fabric, host;
  int ranks = 0;
  bool json = false, svg = false, check = false;
  Parts parts;
};

/// Adds the options. Returns those that each ask for something else than the description.
std::vector<CLI::Option*> add_options(CLI::App& app, Arguments& arguments) {
  app.get_formatter()->column_width(22);
  app.get_formatter()->label("OPTIONS", "OPTION...");
  app.add_option("--file", arguments.file,
                 "the machine of this XML file instead of this machine; hwloc's (lstopo "
                 "machine.xml) or NCCL's (NCCL_TOPO_DUMP_FILE)")
      ->type_name("FILE");
  const char* const parts = "Parts of the description (without any of these: all of it)";
  app.add_flag("--tree", arguments.parts.tree, "processors and devices, with GB/s")->group(parts);
  app.add_flag("--matrix", arguments.parts.matrix,
               "paths between GPUs and NICs, as nvidia-smi topo -m shows them")
      ->group(parts);
  app.add_flag("--nics", arguments.parts.nics, "nearest NICs of each GPU")->group(parts);
  app.add_flag("--rings", arguments.parts.rings, "rings through all GPUs")->group(parts);
  app.add_flag("--bound", arguments.parts.bound, "best bus bandwidth that links permit")
      ->group(parts);
  std::vector<CLI::Option*> others = {
      app.add_flag("--check", arguments.check,
                   "known faults: slow PCI links, ports without a link, missing NVLinks; exit "
                   "status 1 if there are any"),
      app.add_option("--diff", arguments.other,
                     "differences to the machine of another file; exit status 1 if there are any")
          ->type_name("FILE"),
      app.add_option("--bind", arguments.ranks,
                     "cores, GPU and NICs that each of that many ranks should have")
          ->type_name("RANKS")
          ->check(CLI::Range(1, 4096).description("")),
      app.add_flag("--svg", arguments.svg, "picture, as SVG"),
      app.add_flag("--json", arguments.json, "description for programs, as JSON"),
      app.add_option("--export", arguments.format,
                     "description as XML for --file and other tools: hwloc or nccl")
          ->type_name("FORMAT")
          ->check(CLI::IsMember({"hwloc", "nccl"}).description("")),
  };
  for (CLI::Option* const other : others) other->group("Instead of the description, one of");
  auto* const fabric =
      app.add_option("--fabric", arguments.fabric,
                     "switches between hosts of a file: Slurm's topology.conf or topology.yaml, "
                     "the output of ibnetdiscover, or a map of hosts")
          ->type_name("FILE")
          ->group("Networks");
  app.add_option("--host", arguments.host, "switches above this host only")
      ->type_name("NAME")
      ->group("Networks")
      ->needs(fabric);
  others.push_back(fabric);
  app.footer("Exit status: 0; 1 if --check or --diff find anything; 2 if something goes wrong.");
  return others;
}

/// Reads a machine; prints the reason if that fails.
bool read_machine(const std::string& file, Graph& graph) {
  auto read = read_xml_file(file);
  if (!read.ok()) {
    fmt::print(stderr, "whorl-topo: {}\n", read.status().message());
    return false;
  }
  graph = *std::move(read);
  return true;
}

/// Returns the names of two files without folders, unless that makes them the same.
std::pair<std::string, std::string> short_names(const std::string& one, const std::string& two) {
  const std::string a = std::filesystem::path(one).filename();
  const std::string b = std::filesystem::path(two).filename();
  return a == b ? std::pair(one, two) : std::pair(a, b);
}

/// Prints sentences, or that there are none.
int report(const std::vector<std::string>& sentences, const char* none) {
  for (const std::string& sentence : sentences) fmt::print("{}\n", sentence);
  if (sentences.empty()) fmt::print("{}\n", none);
  return sentences.empty() ? kNothing : kFound;
}

/// Prints the switches between hosts of a file, or those above one host. Returns the exit status.
int print_fabric(const std::string& file, const std::string& host) {
  const auto fabric = read_fabric_file(file);
  if (!fabric.ok()) {
    fmt::print(stderr, "whorl-topo: {}\n", fabric.status().message());
    return kFailed;
  }
  for (const std::string& note : fabric->notes) fmt::print(stderr, "note: {}\n", note);
  if (host.empty()) {
    fmt::print("{}\n\n{}", to_summary(*fabric), to_tree(*fabric));
  } else if (fabric->find(host) >= 0) {
    fmt::print("{}", to_chain(*fabric, host));
  } else {
    fmt::print(stderr, "whorl-topo: {}: there is no host {}\n", file, host);
    return kFailed;
  }
  return kNothing;
}

int answer(const Arguments& arguments, const Graph& graph) {
  const bool live = arguments.file.empty();
  if (arguments.check) {
    return report(check(graph, live ? read_pci_states(graph, "/sys") : PciStates()),
                  "No fault is known.");
  }
  if (!arguments.other.empty()) {
    Graph other;
    if (!read_machine(arguments.other, other)) return kFailed;
    const auto [one, two] = short_names(live ? "this machine" : arguments.file, arguments.other);
    return report(diff(graph, other, one, two), "Nothing differs.");
  }
  if (arguments.ranks > 0) {
    fmt::print("{}", describe_binding(graph, arguments.ranks));
  } else if (arguments.svg) {
    fmt::print("{}", to_svg(graph));
  } else if (arguments.json) {
    fmt::print("{}", to_json(graph));
  } else if (!arguments.format.empty()) {
    fmt::print("{}", arguments.format == "nccl" ? write_nccl_xml(graph) : write_hwloc_xml(graph));
  } else {
    fmt::print("{}", describe(graph, arguments.parts));
    std::fflush(stdout);
    for (const std::string& note : graph.notes) fmt::print(stderr, "note: {}\n", note);
  }
  return kNothing;
}

int run(int argc, char** argv) {
  Arguments arguments;
  cli::App app(
      "Shows a machine as whorl sees it: processors, GPUs, NICs and the links between them.",
      "whorl-topo");
  const std::vector<CLI::Option*> others = add_options(app, arguments);
  if (const auto status = cli::parse(app, argc, argv)) return *status;
  const auto asked = std::count_if(others.begin(), others.end(),
                                   [](const CLI::Option* it) { return it->count() > 0; });
  if (asked + (arguments.parts.any() ? 1 : 0) > 1) {
    fmt::print(stderr,
               "whorl-topo: parts of the description, --check, --diff, --bind, --svg, --json, "
               "--export and --fabric are printed by a call each.\n");
    return kFailed;
  }
  if (!arguments.fabric.empty()) return print_fabric(arguments.fabric, arguments.host);
  Graph graph;
  if (arguments.file.empty()) {
    graph = detect(Detail::kDevices);
  } else if (!read_machine(arguments.file, graph)) {
    return kFailed;
  }
  return answer(arguments, graph);
}

} // namespace
} // namespace whorl::topology

int main(int argc, char** argv) {
  return whorl::cli::run_program("whorl-topo", whorl::topology::run, argc, argv);
}
