#include "topology/detect.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "topology/ports.h"
#include "topology/text_file.h"
#include "topology/xml.h"

#ifdef WHORL_HAVE_HWLOC
#include "topology/hwloc_library.h"
#endif
#ifdef WHORL_HAVE_CUDA
#include "gpu/nvml.h"
#include "topology/gpu_links.h"
#endif

namespace whorl::topology {
namespace {

/// Returns a machine of which nothing is known but the number of its processing units.
Graph flat(std::string why) {
  Graph graph;
  graph.nodes.push_back({.kind = NodeKind::kMachine});
  const long cpus = std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));
  for (int i = 0; i < cpus; ++i) {
    Node core{.kind = NodeKind::kCore, .parent = 0, .index = i};
    core.cpus.add(static_cast<unsigned>(i));
    graph.nodes.front().cpus |= core.cpus;
    graph.nodes.push_back(std::move(core));
  }
  graph.notes.push_back(std::move(why));
  normalize(graph);
  return graph;
}

#ifdef WHORL_HAVE_HWLOC

/// Returns what hwloc detects as its XML: live and recorded machines are read by the same code.
Result<std::string> detect_xml(Detail detail) {
  const auto functions = hwloc_functions();
  if (!functions.ok()) return functions.status();
  const HwlocFunctions& hwloc = **functions;
  hwloc_topology_t topology = nullptr;
  const auto failed = [](const char* what) {
    return Status::error(Code::kSystemError, fmt::format("{}: {}", what, std::strerror(errno)));
  };
  if (hwloc.topology_init(&topology) != 0) return failed("hwloc_topology_init");
  const std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)> owner(topology,
                                                                          hwloc.topology_destroy);
  hwloc.topology_set_io_types_filter(topology, detail == Detail::kDevices
                                                   ? HWLOC_TYPE_FILTER_KEEP_IMPORTANT
                                                   : HWLOC_TYPE_FILTER_KEEP_NONE);
  if (detail == Detail::kDevices) { // bridges tell which devices share a switch
    hwloc.topology_set_type_filter(topology, HWLOC_OBJ_BRIDGE, HWLOC_TYPE_FILTER_KEEP_ALL);
  }
  if (hwloc.topology_load(topology) != 0) return failed("hwloc_topology_load");
  char* text = nullptr;
  int size = 0;
  if (hwloc.topology_export_xmlbuffer(topology, &text, &size, 0) != 0) {
    return failed("hwloc_topology_export_xmlbuffer");
  }
  std::string xml(text);
  hwloc.free_xmlbuffer(topology, text);
  return xml;
}

#endif

} // namespace

bool is_undivided(const std::string& root) {
  const std::filesystem::path system = std::filesystem::path(root) / "devices/system";
  const std::string online = first_line(system / "cpu/online");
  const std::string memories = first_line(system / "node/online");
  if (online.empty() || (!memories.empty() && memories != "0")) return false;
  for (int i = 0;; ++i) { // caches, of which the last one is the largest
    const std::filesystem::path caches = system / "cpu/cpu0/cache";
    const std::string sharers = first_line(caches / fmt::format("index{}/shared_cpu_list", i));
    if (sharers.empty()) return false;
    if (sharers == online) return true;
  }
}

Graph detect([[maybe_unused]] Detail detail) {
#ifdef WHORL_HAVE_HWLOC
  auto xml = detect_xml(detail);
  if (!xml.ok()) return flat("hwloc cannot detect this machine: " + xml.status().message());
  auto graph = read_xml(*std::move(xml), "what hwloc detects");
  if (!graph.ok() && detail == Detail::kDevices) { // too many virtual functions, for instance
    Graph processors = detect(Detail::kProcessors);
    processors.notes.push_back("devices are left out: " + graph.status().message());
    return processors;
  }
  if (!graph.ok()) return flat(graph.status().message());
  if (detail == Detail::kDevices) {
    add_port_facts(*graph, "/sys");
#ifdef WHORL_HAVE_CUDA
    const gpu::Nvml& nvml = gpu::Nvml::instance();
    if (nvml.state() == gpu::Nvml::State::kReady) add_gpu_links(*graph, gpu::find_links(nvml));
#endif
  }
  return *std::move(graph);
#else
  return flat("this whorl was built without hwloc, so all processors look alike");
#endif
}

} // namespace whorl::topology
