#include "topology/fabric_builder.h"

#include <fmt/core.h>

#include <algorithm>

#include "topology/hostlist.h"

namespace whorl::topology {
namespace {

/// Children that have several parents: how many, and the first by name as an example.
struct Several {
  std::size_t count = 0;
  std::string child, first, second;

  void add(const std::string& name, const std::string& a, const std::string& b) {
    if (count++ > 0 && !natural_less(name, child)) return;
    child = name;
    first = a;
    second = b;
  }
  std::string text() const {
    return fmt::format("{}, such as {} below {} and {}; each counts as below the one", count, child,
                       first, second);
  }
};

int first_with_most(const std::vector<int>& candidates, const std::vector<std::size_t>& counts) {
  return *std::max_element(candidates.begin(), candidates.end(), [&](int a, int b) {
    return counts[static_cast<std::size_t>(a)] < counts[static_cast<std::size_t>(b)];
  });
}

} // namespace

Status FabricBuilder::error(int line, std::string_view why) const {
  return Status::error(Code::kInvalidArgument, fmt::format("{}, line {}: {}", file_, line, why));
}

void FabricBuilder::note(int line, std::string_view what) {
  note(fmt::format("line {}: {}", line, what));
}

void FabricBuilder::note(std::string_view what) {
  constexpr std::size_t kMostNotes = 100;
  if (notes_.size() > kMostNotes) return;
  notes_.push_back(fmt::format("{}: {}", file_,
                               notes_.size() < kMostNotes ? what : "there is more that is odd"));
}

int FabricBuilder::switch_named(std::string_view name, int line) {
  const auto [known, added] =
      switch_by_name_.emplace(std::string(name), static_cast<int>(switches_.size()));
  if (added) switches_.push_back({.name = std::string(name), .mentioned = line});
  return known->second;
}

Result<int> FabricBuilder::define(std::string_view name, int line) {
  const int index = switch_named(name, line);
  Switch& it = switches_[at(index)];
  if (it.line != 0) {
    return error(line, fmt::format("{} is defined already, in line {}", name, it.line));
  }
  it.line = line;
  return index;
}

int FabricBuilder::add(std::string_view name, int line) {
  switches_.push_back({.name = std::string(name), .line = line});
  return static_cast<int>(switches_.size()) - 1;
}

Result<std::vector<std::string>> FabricBuilder::expand(std::string_view list, int line,
                                                       std::size_t& named) {
  auto names = expand_hostlist(list, kMaxNames - named);
  if (!names.ok()) return error(line, names.status().message());
  named += names->size();
  return names;
}

Status FabricBuilder::add_hosts(int parent, std::string_view list, int line) {
  const auto names = expand(list, line, named_hosts_);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) add_host(parent, name, {});
  return {};
}

Status FabricBuilder::add_switches(int parent, std::string_view list, int line) {
  const auto names = expand(list, line, named_switches_);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) add_switch(parent, switch_named(name, line));
  return {};
}

void FabricBuilder::add_host(int parent, std::string_view name, const Bandwidth& up) {
  const auto [known, added] =
      host_by_name_.emplace(std::string(name), static_cast<int>(hosts_.size()));
  if (added) hosts_.push_back({.name = std::string(name), .up = {}});
  below_.emplace_back(known->second, parent);
  if (!up.known()) return;
  Bandwidth& sum = hosts_[at(known->second)].up;
  sum = {.gb_per_s = sum.gb_per_s + up.gb_per_s, .origin = up.origin};
}

void FabricBuilder::sort_by_name(std::vector<int>& some) const {
  std::sort(some.begin(), some.end(),
            [this](int a, int b) { return natural_less(name(a), name(b)); });
  some.erase(std::unique(some.begin(), some.end()), some.end());
}

/// Returns the leaf of each host: of several, that with the most hosts, so that hosts with the same
/// leaves, as in networks with rails, share one even where a cable is missing.
std::vector<int> FabricBuilder::choose_leaves() {
  std::sort(below_.begin(), below_.end());
  below_.erase(std::unique(below_.begin(), below_.end()), below_.end());
  std::vector<std::size_t> counts(switches_.size());
  for (const auto& [host, leaf] : below_) ++counts[at(leaf)];
  std::vector<int> leaves(hosts_.size(), -1), candidates;
  Several several;
  for (std::size_t i = 0; i < below_.size(); i += candidates.size()) {
    candidates.clear();
    const int host = below_[i].first;
    for (std::size_t j = i; j < below_.size() && below_[j].first == host; ++j) {
      candidates.push_back(below_[j].second);
    }
    sort_by_name(candidates);
    leaves[at(host)] = first_with_most(candidates, counts);
    if (candidates.size() > 1) {
      several.add(hosts_[at(host)].name, name(candidates[0]), name(candidates[1]));
    }
  }
  if (several.count > 0) {
    note(fmt::format("hosts below several switches: {} with the most hosts", several.text()));
  }
  return leaves;
}

/// Returns the parent of each switch, or −1: of several, that with the most switches below.
std::vector<int> FabricBuilder::choose_parents() {
  std::vector<std::size_t> counts(switches_.size());
  for (Switch& it : switches_) {
    sort_by_name(it.parents);
    for (const int parent : it.parents) ++counts[at(parent)];
  }
  std::vector<int> parents;
  Several several;
  for (const Switch& it : switches_) {
    parents.push_back(it.parents.empty() ? -1 : first_with_most(it.parents, counts));
    if (it.parents.size() > 1) several.add(it.name, name(it.parents[0]), name(it.parents[1]));
  }
  if (several.count > 0) {
    note(fmt::format("switches below several others: {} with the most switches", several.text()));
  }
  return parents;
}

/// Returns an error that names a cycle, which is found by going down from `start`. Each switch that
/// is `left` has another one below it.
Status FabricBuilder::cycle_error(int start, const std::vector<bool>& left) const {
  std::vector<int> child(switches_.size(), -1);
  for (std::size_t i = 0; i < switches_.size(); ++i) {
    if (!left[i]) continue;
    for (const int parent : switches_[i].parents) {
      int& lowest = child[at(parent)];
      const int it = static_cast<int>(i);
      if (lowest < 0 || natural_less(name(it), name(lowest))) lowest = it;
    }
  }
  std::vector<bool> seen(switches_.size());
  for (; !seen[at(start)]; start = child[at(start)]) seen[at(start)] = true;
  std::string text = name(start);
  constexpr int kMostShown = 8;
  int shown = 0;
  for (int it = child[at(start)]; it != start; it = child[at(it)]) {
    if (++shown <= kMostShown) text += fmt::format(" above {}", name(it));
  }
  if (shown > kMostShown) text += fmt::format(" above {} others", shown - kMostShown);
  return error(switches_[at(start)].line,
               fmt::format("a switch is below itself: {} above {}", text, name(start)));
}

Status FabricBuilder::check_cycles() const {
  // Switches without children are taken away until none is left, or each has a child in a cycle.
  std::vector<std::size_t> children(switches_.size());
  for (const Switch& it : switches_) {
    for (const int parent : it.parents) ++children[at(parent)];
  }
  std::vector<int> ready;
  for (std::size_t i = 0; i < switches_.size(); ++i) {
    if (children[i] == 0) ready.push_back(static_cast<int>(i));
  }
  std::vector<bool> left(switches_.size(), true);
  std::size_t gone = 0;
  for (; gone < ready.size(); ++gone) {
    const int it = ready[gone];
    left[at(it)] = false;
    for (const int parent : switches_[at(it)].parents) {
      if (--children[at(parent)] == 0) ready.push_back(parent);
    }
  }
  if (gone == switches_.size()) return {};
  int start = -1;
  for (int it = 0; at(it) < switches_.size(); ++it) {
    if (left[at(it)] && (start < 0 || natural_less(name(it), name(start)))) start = it;
  }
  return cycle_error(start, left);
}

Status FabricBuilder::check_depth(const std::vector<int>& parents) const {
  for (std::size_t i = 0; i < parents.size(); ++i) {
    int levels = 1;
    for (int it = parents[i]; it >= 0; it = parents[at(it)]) {
      if (++levels > kMaxLevels) {
        return error(switches_[i].line,
                     fmt::format("{} has more than {} switches above it; no network has as many",
                                 switches_[i].name, kMaxLevels - 1));
      }
    }
  }
  return {};
}

/// Returns the switches in the order that Fabric describes.
std::vector<int> FabricBuilder::order(const std::vector<int>& parents) const {
  std::vector<std::vector<int>> children(switches_.size());
  std::vector<int> walk, waiting;
  for (std::size_t i = 0; i < switches_.size(); ++i) {
    (parents[i] < 0 ? waiting : children[at(parents[i])]).push_back(static_cast<int>(i));
  }
  // The last one that waits is the next one.
  const auto by_name = [this](int a, int b) { return natural_less(name(b), name(a)); };
  std::sort(waiting.begin(), waiting.end(), by_name);
  while (!waiting.empty()) {
    walk.push_back(waiting.back());
    waiting.pop_back();
    std::vector<int>& below = children[at(walk.back())];
    std::sort(below.begin(), below.end(), by_name);
    waiting.insert(waiting.end(), below.begin(), below.end());
  }
  return walk;
}

Result<Fabric> FabricBuilder::finish(FabricFormat format) {
  if (hosts_.empty()) {
    return Status::error(Code::kInvalidArgument, fmt::format("{}: the file names no host", file_));
  }
  for (const Switch& it : switches_) {
    if (it.line == 0) {
      return error(it.mentioned, fmt::format("the switch {} is not defined", it.name));
    }
  }
  WHORL_TRY(check_cycles());
  const std::vector<int> leaves = choose_leaves(), parents = choose_parents();
  WHORL_TRY(check_depth(parents));
  Fabric fabric{.format = format};
  std::vector<int> place(switches_.size(), -1);
  for (const int it : order(parents)) {
    place[at(it)] = static_cast<int>(fabric.switches.size());
    const int parent = parents[at(it)];
    fabric.switches.push_back({.name = std::move(switches_[at(it)].name),
                               .parent = parent < 0 ? -1 : place[at(parent)],
                               .up = switches_[at(it)].up});
  }
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    fabric.hosts.push_back(
        {.name = std::move(hosts_[i].name), .leaf = place[at(leaves[i])], .up = hosts_[i].up});
  }
  std::sort(fabric.hosts.begin(), fabric.hosts.end(),
            [](const FabricHost& a, const FabricHost& b) { return a.name < b.name; });
  fabric.notes = std::move(notes_);
  return fabric;
}

} // namespace whorl::topology
