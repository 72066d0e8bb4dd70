#include "comm/place.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/hash.h"
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

/// Returns the file that describes this machine: that of WHORL_TOPO_FILE, or of NCCL's variable.
std::string machine_file() {
  const std::string ours = param_text(Param::kTopoFile);
  const char* const nccl = std::getenv("NCCL_TOPO_FILE");
  return ours.empty() && nccl != nullptr ? nccl : ours;
}

/// Returns the machine of a file, or, without a file, the one that this process runs on. A process
/// reads each file once, and looks at its machine once.
Result<Graph> machine(const std::string& file) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, Graph>; // may be in use while the process ends
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(file); found != known.end()) return found->second;
  auto graph = file.empty() ? Result<Graph>(detect(topology::Detail::kProcessors))
                            : topology::read_xml_file(file);
  if (!graph.ok()) return graph.status().with_context("WHORL_TOPO_FILE");
  return known[file] = *std::move(graph);
}

/// Returns the network that a file describes. A process reads each file once.
Result<const topology::Fabric*> fabric(const std::string& file) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, topology::Fabric>; // as those of machine()
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(file); found != known.end()) return &found->second;
  auto read = topology::read_fabric_file(file);
  if (!read.ok()) return read.status().with_context("WHORL_FABRIC_FILE");
  return &known.emplace(file, *std::move(read)).first->second;
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
  const auto network = fabric(file);
  if (!network.ok()) return network.status();
  const std::vector<int> above = (*network)->above(host);
  const auto key = [&](std::size_t level) {
    Hash hash;
    hash.mix((*network)->at(above[level]).name);
    return std::max<std::uint64_t>(hash.value(), 1); // 0: unknown
  };
  if (!above.empty()) place.leaf = key(0);
  if (above.size() > 1) place.pod = key(1);
  return {};
}

Result<RankPlace> describe_place() {
  RankPlace place;
  if (sys().affinity(place.cpus) < 0) place.cpus = {};
  const auto nic = topology::interface_facts(interface_for_other_hosts(), "/sys");
  place.nic_gb_per_s = nic.rate.gb_per_s;
  place.nic_numa = nic.numa;
  const std::string file = machine_file();
  const int cpus = cpus_of(place);
  if (file.empty() && (cpus == 0 || cpus >= ::sysconf(_SC_NPROCESSORS_ONLN))) return place;
  const auto graph = machine(file);
  if (!graph.ok()) return graph.status();
  const topology::CpuSet set = set_of(place);
  const topology::Placement parts = find_placement(*graph, set);
  place.package = parts.package;
  place.numa = parts.numa;
  place.cache = parts.cache;
  if (file.empty()) return place;
  const topology::NearNic near = find_near_nic(*graph, set);
  place.nic_gb_per_s = near.rate.gb_per_s;
  place.nic_numa = near.numa;
  return place;
}

} // namespace whorl
