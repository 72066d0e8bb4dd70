#include "comm/placement.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "base/log.h"
#include "base/system.h"
#include "comm/place.h"

namespace whorl {
namespace {

using Cpus = decltype(RankPlace::cpus);

/// Returns "0-3,8".
std::string ranges_of(const Cpus& cpus) {
  std::string text;
  const auto has = [&](std::size_t cpu) {
    return cpu < cpus.size() * 64 && (cpus[cpu / 64] >> (cpu % 64) & 1) != 0;
  };
  for (std::size_t cpu = 0; cpu < cpus.size() * 64; ++cpu) {
    if (!has(cpu)) continue;
    const std::size_t first = cpu;
    while (has(cpu + 1)) ++cpu;
    text += text.empty() ? "" : ",";
    text += first == cpu ? fmt::format("{}", first) : fmt::format("{}-{}", first, cpu);
  }
  return text;
}

/// Returns whether no other communicator of several ranks was made in this process before.
bool first_of_process(const Identity& identity) {
  static std::mutex mutex;
  static std::optional<std::array<std::byte, 16>> first;
  const std::lock_guard lock(mutex);
  if (!first) first = identity.job;
  return *first == identity.job;
}

/// Returns "ranks 0, 2 and 5 (host node7)"; of many ranks the first ones.
std::string names_of(const std::vector<int>& ranks, const Membership& members) {
  constexpr std::size_t kMost = 6;
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < ranks.size() && i < kMost; ++i) {
    const bool last = i + 1 == ranks.size();
    text += fmt::format("{} {}", i == 0 ? "" : last ? " and" : ",", ranks[i]);
  }
  if (ranks.size() > kMost) text += fmt::format(" and {} more", ranks.size() - kMost);
  return fmt::format("{} (host {})", text, members.info(ranks.front()).host_name.data());
}

/// Returns the number of ranks that may use no other processing units than those of `rank`.
std::ptrdiff_t ranks_inside(const Membership& members, int rank) {
  const PeerInfo& self = members.info(rank);
  const auto inside = [&](const PeerInfo& info) {
    if (info.machine_key != self.machine_key || cpus_of(info.place) == 0) return false;
    for (std::size_t word = 0; word < info.place.cpus.size(); ++word) {
      if ((info.place.cpus[word] & ~self.place.cpus[word]) != 0) return false;
    }
    return true;
  };
  return std::count_if(members.peers.begin(), members.peers.end(), inside);
}

} // namespace

double ranks_per_processor(const Membership& members, int rank) {
  const int units = cpus_of(members.info(rank).place);
  if (units == 0) return 1;
  return std::max(1.0, static_cast<double>(ranks_inside(members, rank)) / units);
}

bool has_spare_processor(const Membership& members, int rank) {
  const int units = cpus_of(members.info(rank).place);
  return units == 0 || units > ranks_inside(members, rank);
}

std::optional<unsigned> first_processor(const Membership& members, int rank) {
  const PeerInfo& self = members.info(rank);
  const auto units = static_cast<unsigned>(cpus_of(self.place));
  if (units < 2) return std::nullopt;
  unsigned before = 0, all = 0; // ranks that may use the same units
  for (int peer = 0; peer < members.nranks; ++peer) {
    const PeerInfo& info = members.info(peer);
    if (peer != rank && members.same_process(peer, rank)) return std::nullopt;
    if (info.machine_key != self.machine_key || info.place.cpus != self.place.cpus) continue;
    ++all;
    before += peer < rank ? 1 : 0;
  }
  if (all < units) return std::nullopt;
  unsigned skip = before % units;
  for (unsigned cpu = 0;; ++cpu) {
    if ((self.place.cpus[cpu / 64] >> (cpu % 64) & 1) != 0 && skip-- == 0) return cpu;
  }
}

void spread_over_processors(const Membership& members) noexcept {
  if (members.nranks == 1 || !first_of_process(members.identity)) return;
  const auto cpu = first_processor(members, members.rank);
  if (!cpu) return;
  Cpus before{}, one{};
  one[*cpu / 64] = std::uint64_t{1} << (*cpu % 64);
  if (sys().affinity(before) < 0 || before != members.info(members.rank).place.cpus) return;
  if (sys().set_affinity(one) != 0) return;
  if (const int error = sys().set_affinity(before); error != 0) {
    log(LogLevel::kWarn, fmt::format("rank {} is left on processor {} alone: {}", members.rank,
                                     *cpu, std::strerror(-error)));
  }
}

std::vector<std::string> placement_warnings(const Membership& members, int rank, int online) {
  std::map<Cpus, std::vector<int>> bound; // ranks by the processing units that they may use
  Cpus used{};
  std::vector<int> here;
  bool hosts = false;
  for (int peer = 0; peer < members.nranks; ++peer) {
    const PeerInfo& info = members.info(peer);
    hosts = hosts || info.machine_key != members.info(rank).machine_key;
    if (info.machine_key != members.info(rank).machine_key) continue;
    here.push_back(peer);
    bound[info.place.cpus].push_back(peer);
    for (std::size_t word = 0; word < used.size(); ++word) used[word] |= info.place.cpus[word];
  }
  if (bound.contains(Cpus{})) return {}; // some place is unknown
  std::vector<std::string> warnings;
  const int free = online - cpus_of({.cpus = used});
  for (const auto& [cpus, ranks] : bound) {
    const int room = cpus_of({.cpus = cpus});
    if (static_cast<int>(ranks.size()) <= room || free <= 0) continue;
    warnings.push_back(fmt::format(
        "{} share processor{} {}, while no rank may use {} of the {} processors of this machine; "
        "give each rank its own, for instance by the launcher (mpirun --bind-to core, srun "
        "--cpu-bind=cores), as `whorl-topo --bind {}` shows, or do not bind ranks",
        names_of(ranks, members), room == 1 ? "" : "s", ranges_of(cpus), free, online,
        here.size()));
  }
  const auto far = [&](int peer) {
    const RankPlace& place = members.info(peer).place;
    return place.numa >= 0 && place.nic_numa >= 0 && place.numa != place.nic_numa;
  };
  if (hosts && free > 0 && std::all_of(here.begin(), here.end(), far)) {
    const int numa = members.info(here.front()).place.nic_numa;
    warnings.push_back(fmt::format(
        "{} {} bound far from the NIC, which is at NUMA node {}; bind at least one rank there, "
        "for instance by numactl --cpunodebind={}",
        names_of(here, members), here.size() == 1 ? "is" : "are", numa, numa));
  }
  return warnings;
}

void warn_of_places(const Membership& members) {
  if (members.nranks == 1 || !first_of_process(members.identity)) return;
  const auto here = [&](const PeerInfo& info) {
    return info.machine_key == members.info(members.rank).machine_key;
  };
  const auto first = std::find_if(members.peers.begin(), members.peers.end(), here);
  if (first != members.peers.begin() + members.rank) return;
  const auto online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  for (const std::string& sentence : placement_warnings(members, members.rank, online)) {
    log(LogLevel::kWarn, sentence);
  }
}

} // namespace whorl
