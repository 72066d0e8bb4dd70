#include "comm/place.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/log.h"
#include "base/params.h"
#include "base/system.h"
#include "net/address.h"
#include "topology/detect.h"
#include "topology/fabric.h"
#include "topology/placement.h"
#include "topology/ports.h"
#include "topology/xml.h"

namespace whorl {
namespace {

using topology::Graph;

/// Returns what `kRead` makes of a file. A process reads each well-formed file once.
template <class Content, Result<Content> (*kRead)(const std::string&)>
Result<const Content*> read_once(const std::string& file) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, Content>; // may be in use while the process ends
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(file); found != known.end()) return &found->second;
  auto content = kRead(file);
  if (!content.ok()) return content.status();
  return &known.emplace(file, *std::move(content)).first->second;
}
constexpr auto read_machine = read_once<Graph, topology::read_xml_file>;
constexpr auto read_fabric = read_once<topology::Fabric, topology::read_fabric_file>;

/// Returns the processors of the machine that this process runs on, which it detects once.
const Graph& detected_machine() {
  static const auto& machine = *new Graph(detect(topology::Detail::kProcessors));
  return machine;
}

/// Returns the machine that a variable's file describes, or null. A file of NCCL's variable that
/// cannot be read is left out with a warning: it may be meant for another host, and NCCL goes on
/// without it.
Result<const Graph*> described_machine() {
  if (const std::string file = param_text(Param::kTopoFile); !file.empty()) {
    auto graph = read_machine(file);
    return graph.ok() ? graph : graph.status().with_context("WHORL_TOPO_FILE");
  }
  const Graph* const nothing = nullptr;
  const char* const file = std::getenv("NCCL_TOPO_FILE");
  if (file == nullptr || *file == '\0') return nothing;
  auto graph = read_machine(file);
  if (graph.ok()) return graph;
  static std::once_flag once;
  std::call_once(once, [&] {
    log(LogLevel::kWarn, fmt::format("NCCL_TOPO_FILE is left out: {}", graph.status().message()));
  });
  return nothing;
}

topology::CpuSet set_of(const RankPlace& place) {
  topology::CpuSet set;
  for (std::size_t word = 0; word < place.cpus.size(); ++word) {
    for (std::uint64_t bits = place.cpus[word]; bits != 0; bits &= bits - 1) {
      set.add(static_cast<unsigned>(word * 64) + static_cast<unsigned>(std::countr_zero(bits)));
    }
  }
  return set;
}

} // namespace

int cpus_of(const RankPlace& place) noexcept {
  int count = 0;
  for (const std::uint64_t word : place.cpus) count += std::popcount(word);
  return count;
}

Status enter_switches(const std::string& host, RankPlace& place) {
  const std::string file = param_text(Param::kFabricFile);
  if (file.empty()) return {};
  const auto network = read_fabric(file);
  if (!network.ok()) return network.status().with_context("WHORL_FABRIC_FILE");
  const std::vector<int> above = (*network)->above(host);
  const auto key = [&](std::size_t level) {
    Hash hash;
    hash.mix((*network)->at(above[level]).name);
    return std::max<std::uint64_t>(hash.value(), 1); // 0: unknown
  };
  const auto rate = [&](std::size_t level) { return (*network)->at(above[level]).up.gb_per_s; };
  if (above.empty()) return {};
  place.leaf = key(0);
  place.leaf_gb_per_s = rate(0);
  if (above.size() > 1) {
    place.pod = key(1);
    place.pod_gb_per_s = rate(1);
  }
  return {};
}

Result<RankPlace> describe_place() {
  RankPlace place;
  if (sys().affinity(place.cpus) < 0) place.cpus = {};
  const auto nic = topology::interface_facts(interface_for_other_hosts(), "/sys");
  place.nic_gb_per_s = nic.rate.gb_per_s;
  place.nic_numa = nic.numa;
  const auto described = described_machine();
  if (!described.ok()) return described.status();
  const int cpus = cpus_of(place);
  const bool bound = cpus > 0 && cpus < ::sysconf(_SC_NPROCESSORS_ONLN);
  if (*described == nullptr && (!bound || topology::is_undivided("/sys"))) return place;
  const Graph& graph = *described != nullptr ? **described : detected_machine();
  const topology::CpuSet set = set_of(place);
  const topology::Placement parts = find_placement(graph, set);
  place.package = parts.package;
  place.numa = parts.numa;
  place.cache = parts.cache;
  if (*described == nullptr) return place;
  const topology::NearNic near = find_near_nic(graph, set);
  place.nic_gb_per_s = near.rate.gb_per_s;
  place.nic_numa = near.numa;
  return place;
}

std::vector<std::string> nearest_rdma_devices() {
  RankPlace place;
  if (sys().affinity(place.cpus) < 0) return {};
  const auto described = described_machine();
  if (described.ok() && *described != nullptr) return find_near_rdma(**described, set_of(place));
  static const auto& machine = *new Graph(detect(topology::Detail::kDevices));
  return find_near_rdma(machine, set_of(place));
}

} // namespace whorl
