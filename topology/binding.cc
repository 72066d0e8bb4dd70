#include "topology/binding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "topology/paths.h"

namespace whorl::topology {
namespace {

/// Share of a rank that may be lost to keep its cores together, as a fraction.
constexpr std::size_t kKept = 2, kOf = 3;

bool keeps_enough(std::size_t share, std::size_t best) { return kOf * share >= kKept * best; }

/// Core, or what stands for one.
struct Unit {
  std::vector<unsigned> cpus;
  int node = 0; ///< part of the machine that the unit belongs to
};

/// Splits CPUs into cores: if these are several runs of the same length, a core is one CPU of each.
void add_units(const std::vector<unsigned>& cpus, int node, std::vector<Unit>& units) {
  std::size_t length = 1;
  while (length < cpus.size() && cpus[length] == cpus[length - 1] + 1) ++length;
  bool alike = !cpus.empty() && cpus.size() % length == 0;
  for (std::size_t i = 1; i < cpus.size() && alike; ++i) {
    alike = (cpus[i] == cpus[i - 1] + 1) == (i % length != 0);
  }
  if (!alike) length = cpus.size();
  for (std::size_t i = 0; i < length; ++i) {
    Unit unit{.node = node};
    for (std::size_t cpu = i; cpu < cpus.size(); cpu += length) unit.cpus.push_back(cpus[cpu]);
    units.push_back(std::move(unit));
  }
}

/// Returns the cores in the order of the tree; each CPU is in one of them.
std::vector<Unit> find_units(const Graph& graph) {
  std::vector<Unit> units;
  CpuSet seen;
  const auto unseen = [&seen](const CpuSet& cpus) {
    std::vector<unsigned> found = cpus.numbers();
    std::erase_if(found, [&](unsigned cpu) { return seen.contains(cpu); });
    seen |= cpus;
    return found;
  };
  const std::vector<int> cores = graph.all(NodeKind::kCore);
  if (!cores.empty()) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      if (graph.nodes[i].kind != NodeKind::kCore) continue;
      Unit unit{.cpus = unseen(graph.nodes[i].cpus), .node = static_cast<int>(i)};
      if (!unit.cpus.empty()) units.push_back(std::move(unit));
    }
    return units;
  }
  for (std::size_t i = graph.nodes.size(); i-- > 0;) { // the smallest parts first
    if (!graph.nodes[i].cpus.empty()) {
      add_units(unseen(graph.nodes[i].cpus), static_cast<int>(i), units);
    }
  }
  std::stable_sort(units.begin(), units.end(),
                   [](const Unit& a, const Unit& b) { return a.node < b.node; });
  return units;
}

/// Ranks whose cores are to be found among the same units.
struct Group {
  std::vector<std::size_t> units;
  std::vector<int> ranks;
};

/// Units of each rank.
using Placement = std::vector<std::vector<std::size_t>>;

/// Finder of places for the ranks of a host.
class Placer {
 public:
  Placer(const Graph& graph, const std::vector<Unit>& units, std::vector<Group> groups)
      : units_(units), groups_(std::move(groups)) {
    for (const Unit& unit : units) {
      int part = 0; // the next larger one, where there is none of that kind
      for (std::size_t level = kLevels.size(); level-- > 0;) {
        part = std::max(part, graph.above(unit.node, kLevels.at(level)));
        domains_.at(level).push_back(part);
      }
    }
    // Ranks with the least choice come first.
    std::stable_sort(groups_.begin(), groups_.end(), [](const Group& a, const Group& b) {
      return a.units.size() < b.units.size();
    });
    for (const Group& group : groups_) ranks_ += group.ranks.size();
  }

  /// Places all ranks; nothing if some would have no core of their own.
  std::optional<Placement> place() const {
    const std::size_t best = largest_share(kAnywhere);
    if (best == 0) return {};
    std::size_t level = 0, share = 0;
    for (; level < kAnywhere; ++level) {
      share = largest_share(level);
      if (keeps_enough(share, best)) break;
    }
    if (level == kAnywhere) share = best;
    // A rank of several smaller parts has whole ones.
    for (std::size_t finer = level; finer-- > 0;) {
      const std::size_t size = common_size(finer);
      if (size < share && keeps_enough(share - share % size, best)) share -= share % size;
    }
    return place(share, level);
  }

 private:
  /// Kinds of parts that should not be left, from small ones to large ones.
  static constexpr std::array<NodeKind, 3> kLevels = {NodeKind::kCache, NodeKind::kNuma,
                                                      NodeKind::kPackage};
  static constexpr std::size_t kAnywhere = kLevels.size();

  int domain(std::size_t unit, std::size_t level) const {
    return level == kAnywhere ? 0 : domains_.at(level)[unit];
  }

  /// Places ranks with `share` units each, which are in one part of that level.
  std::optional<Placement> place(std::size_t share, std::size_t level) const {
    Placement placement(ranks_);
    std::vector<bool> taken(units_.size());
    for (const Group& group : groups_) {
      std::map<int, std::vector<std::size_t>> parts;
      for (const std::size_t unit : group.units) {
        if (!taken[unit]) parts[domain(unit, level)].push_back(unit);
      }
      std::size_t places = 0, before = 0;
      for (const auto& [part, inside] : parts) places += inside.size() / share;
      if (places < group.ranks.size()) return {};
      auto rank = group.ranks.begin();
      for (const auto& [part, inside] : parts) {
        // The ranks are spread evenly over the places.
        const std::size_t after = before + inside.size() / share;
        const std::size_t first = ceil_of(before * group.ranks.size(), places);
        const std::size_t last = ceil_of(after * group.ranks.size(), places);
        for (std::size_t i = 0; i < last - first; ++i) {
          auto& its = placement[static_cast<std::size_t>(*rank++)];
          for (std::size_t u = i * share; u < (i + 1) * share; ++u) {
            its.push_back(inside[u]);
            taken[inside[u]] = true;
          }
        }
        before = after;
      }
    }
    return placement;
  }

  static std::size_t ceil_of(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

  /// Returns the most units that every rank can have in one part of that level; 0: none.
  std::size_t largest_share(std::size_t level) const {
    std::size_t fits = 0, too_many = units_.size() / std::max<std::size_t>(ranks_, 1) + 1;
    while (fits + 1 < too_many) {
      const std::size_t middle = (fits + too_many) / 2;
      (place(middle, level) ? fits : too_many) = middle;
    }
    return fits;
  }

  /// Returns the number of units in each part of that level; if it varies, the number of all.
  std::size_t common_size(std::size_t level) const {
    std::map<int, std::size_t> sizes;
    for (std::size_t unit = 0; unit < units_.size(); ++unit) ++sizes[domain(unit, level)];
    const bool same = std::all_of(sizes.begin(), sizes.end(), [&](const auto& it) {
      return it.second == sizes.begin()->second;
    });
    return same && !sizes.empty() ? sizes.begin()->second : units_.size();
  }

  const std::vector<Unit>& units_;
  std::vector<Group> groups_;
  std::size_t ranks_ = 0;
  std::array<std::vector<int>, kLevels.size()> domains_; ///< part of each unit
};

/// Returns one group of all ranks, or, where each rank has a GPU, groups by the units near it.
std::vector<Group> group_ranks(const Graph& graph, const std::vector<Unit>& units,
                               const std::vector<Binding>& bindings, bool near_gpus) {
  std::map<int, Group> groups; // by the part that contains their units
  for (std::size_t rank = 0; rank < bindings.size(); ++rank) {
    int home = near_gpus && bindings[rank].gpu >= 0 ? bindings[rank].gpu : 0;
    const auto at_home = [&](const Unit& unit) {
      return home == 0 || graph.at(home).cpus.contains(unit.cpus.front());
    };
    while (home > 0 &&
           (graph.at(home).cpus.empty() || !std::any_of(units.begin(), units.end(), at_home))) {
      home = graph.at(home).parent;
    }
    Group& group = groups[home];
    group.ranks.push_back(static_cast<int>(rank));
    if (!group.units.empty()) continue;
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
      if (at_home(units[unit])) group.units.push_back(unit);
    }
  }
  std::vector<Group> found;
  for (auto& [home, group] : groups) found.push_back(std::move(group));
  return found;
}

/// Returns the place of ranks that are more than the units: some have the same unit.
Placement place_crowded(const std::vector<Group>& groups, std::size_t ranks) {
  Placement placement(ranks);
  for (const Group& group : groups) {
    for (std::size_t i = 0; i < group.ranks.size(); ++i) {
      placement[static_cast<std::size_t>(group.ranks[i])] = {
          group.units[i * group.units.size() / group.ranks.size()]};
    }
  }
  return placement;
}

void set_processors(const Graph& graph, std::vector<Binding>& bindings) {
  const std::vector<Unit> cores = find_units(graph);
  if (cores.empty()) return;
  std::vector<Unit> units = cores;
  std::vector<std::size_t> core_of(cores.size());
  std::iota(core_of.begin(), core_of.end(), std::size_t{0});
  const auto try_place = [&]() -> std::optional<Placement> {
    for (const bool near_gpus : {true, false}) {
      auto found = Placer(graph, units, group_ranks(graph, units, bindings, near_gpus)).place();
      if (found) return found;
    }
    return {};
  };
  auto placement = try_place();
  if (!placement) { // hyperthreads instead of cores
    units.clear();
    core_of.clear();
    for (std::size_t core = 0; core < cores.size(); ++core) {
      for (const unsigned cpu : cores[core].cpus) {
        units.push_back({.cpus = {cpu}, .node = cores[core].node});
        core_of.push_back(core);
      }
    }
    placement = try_place();
  }
  if (!placement) {
    placement = place_crowded(group_ranks(graph, units, bindings, true), bindings.size());
  }
  std::vector<int> users(cores.size());
  const auto cores_of = [&](std::size_t rank) {
    std::vector<std::size_t> its;
    for (const std::size_t unit : (*placement)[rank]) its.push_back(core_of[unit]);
    its.erase(std::unique(its.begin(), its.end()), its.end());
    return its;
  };
  for (std::size_t rank = 0; rank < bindings.size(); ++rank) {
    for (const std::size_t core : cores_of(rank)) ++users[core];
  }
  for (std::size_t rank = 0; rank < bindings.size(); ++rank) {
    Binding& binding = bindings[rank];
    binding.part = -1;
    for (const std::size_t unit : (*placement)[rank]) {
      for (const unsigned cpu : units[unit].cpus) binding.cpus.add(cpu);
      const int node = units[unit].node;
      binding.part = binding.part < 0 ? node : graph.common(binding.part, node);
    }
    for (const std::size_t core : cores_of(rank)) {
      ++binding.cores;
      if (users[core] > 1) binding.shared = true;
    }
  }
}

/// Shares the NICs that are nearest to several ranks out among these.
void set_nics(const Graph& graph, std::vector<Binding>& bindings) {
  std::map<int, std::vector<int>> nearest; // by GPU or part
  std::map<std::vector<int>, std::vector<std::size_t>> users;
  for (std::size_t rank = 0; rank < bindings.size(); ++rank) {
    const int from = bindings[rank].gpu >= 0 ? bindings[rank].gpu : bindings[rank].part;
    auto known = nearest.find(from);
    if (known == nearest.end()) known = nearest.emplace(from, nearest_nics(graph, from)).first;
    if (!known->second.empty()) users[known->second].push_back(rank);
  }
  for (const auto& [nics, ranks] : users) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const std::size_t first = i * nics.size() / ranks.size();
      const std::size_t last = std::max((i + 1) * nics.size() / ranks.size(), first + 1);
      for (std::size_t nic = first; nic < last; ++nic) bindings[ranks[i]].nics.push_back(nics[nic]);
    }
  }
}

} // namespace

std::vector<Binding> bind_ranks(const Graph& graph, int ranks) {
  std::vector<Binding> bindings(static_cast<std::size_t>(std::max(ranks, 1)));
  const std::vector<int> gpus = graph.all(NodeKind::kGpu);
  for (std::size_t rank = 0; rank < bindings.size() && bindings.size() <= gpus.size(); ++rank) {
    bindings[rank].gpu = gpus[rank];
  }
  set_processors(graph, bindings);
  set_nics(graph, bindings);
  return bindings;
}

std::vector<std::string> binding_notes(const Graph& graph, const std::vector<Binding>& bindings) {
  std::vector<std::string> notes;
  const std::vector<Unit> cores = find_units(graph);
  std::size_t used = 0, cpus = 0;
  for (const Unit& core : cores) cpus += core.cpus.size();
  for (const Binding& binding : bindings) used += static_cast<std::size_t>(binding.cores);
  const bool shared =
      std::any_of(bindings.begin(), bindings.end(), [](const Binding& it) { return it.shared; });
  if (cores.empty()) {
    notes.emplace_back("The description shows no processors, so there is no advice on these.");
  } else if (bindings.size() > cpus) {
    notes.push_back(
        fmt::format("There are {} ranks and {} CPUs: ranks share CPUs, and wait for each other.",
                    bindings.size(), cpus));
  } else if (shared) {
    notes.push_back(
        fmt::format("There are {} ranks and {} cores: ranks share cores, each with a hardware "
                    "thread of its own.",
                    bindings.size(), cores.size()));
  } else if (used < cores.size()) {
    notes.push_back(fmt::format(
        "{} of {} cores are left over, so that all ranks have as many, and close to each other.",
        cores.size() - used, cores.size()));
  }
  const std::size_t gpus = graph.all(NodeKind::kGpu).size();
  if (gpus > 0 && bindings.size() > gpus) {
    notes.push_back(fmt::format("There are {} ranks and {} GPU{}, so no rank is given one.",
                                bindings.size(), gpus, gpus == 1 ? "" : "s"));
  }
  std::map<std::string, std::vector<std::size_t>> far; // ranks by the reason
  for (std::size_t rank = 0; rank < bindings.size(); ++rank) {
    const Binding& binding = bindings[rank];
    const auto add = [&](const std::string& why) { far[why].push_back(rank); };
    const int numa = binding.gpu < 0 ? -1 : graph.above(binding.gpu, NodeKind::kNuma);
    if (numa >= 0 && !cores.empty() && !graph.at(numa).cpus.intersects(binding.cpus)) {
      add(fmt::format("on processors far from {}: {} of this GPU has {}", label(graph, binding.gpu),
                      label(graph, numa),
                      graph.at(numa).cpus.empty() ? "none" : "none that is free"));
    }
    for (const int nic : binding.nics) {
      if (graph.at(nic).down) add(fmt::format("near {}, which has no link", label(graph, nic)));
    }
  }
  for (const auto& [why, ranks] : far) {
    notes.push_back(fmt::format("Rank{} {} {} {}.", ranks.size() == 1 ? "" : "s",
                                fmt::join(ranks, ", "), ranks.size() == 1 ? "is" : "are", why));
  }
  return notes;
}

} // namespace whorl::topology
