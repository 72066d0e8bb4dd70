#include "comm/arrangement.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/hash.h"

namespace whorl {
namespace {

/// Part of a job that groups ranks, outermost first.
enum class Level : std::uint8_t { kPod, kLeaf, kHost, kPackage, kNuma, kCache };

constexpr std::size_t kLevels = 6;

/// Number of the part of each level that holds a rank, by column(). Numbers are given in the
/// order of the parts' lowest ranks, and are unique among all parts of a level.
using Parts = std::array<int, kLevels>;

constexpr std::size_t column(Level level) { return static_cast<std::size_t>(level); }

/// Returns what a rank's place says of a level; −1 or 0: unknown.
std::int64_t key_of(const PeerInfo& info, Level level) {
  switch (level) {
    case Level::kPod:
      return static_cast<std::int64_t>(info.place.pod);
    case Level::kLeaf:
      return static_cast<std::int64_t>(info.place.leaf);
    case Level::kHost:
      return static_cast<std::int64_t>(info.host_key);
    case Level::kPackage:
      return info.place.package;
    case Level::kNuma:
      return info.place.numa;
    case Level::kCache:
      break;
  }
  return info.place.cache;
}

bool known(const PeerInfo& info, Level level) {
  const bool switches = level == Level::kPod || level == Level::kLeaf;
  return level == Level::kHost || key_of(info, level) != (switches ? 0 : -1);
}

/// Numbers the parts of all levels. A level that some rank does not know does not divide anything.
std::vector<Parts> parts_of(const std::vector<PeerInfo>& peers) {
  std::vector<Parts> parts(peers.size());
  for (std::size_t level = 0; level < kLevels; ++level) {
    const auto what = static_cast<Level>(level);
    const auto known_to = [&](const PeerInfo& info) { return known(info, what); };
    const auto same = [&](const PeerInfo& info) {
      return key_of(info, what) == key_of(peers.front(), what);
    };
    const bool divides = std::all_of(peers.begin(), peers.end(), known_to) &&
                         !std::all_of(peers.begin(), peers.end(), same);
    std::map<std::pair<int, std::int64_t>, int> numbers; // of (part above, key)
    for (std::size_t rank = 0; rank < peers.size(); ++rank) {
      const int above = level == 0 ? 0 : parts[rank][level - 1];
      parts[rank][level] = above;
      if (!divides) continue;
      const auto number = static_cast<int>(numbers.size());
      parts[rank][level] =
          numbers.emplace(std::pair(above, key_of(peers[rank], what)), number).first->second;
    }
  }
  return parts;
}

int count(const std::vector<Parts>& parts, Level level) {
  int most = 0;
  for (const Parts& of_rank : parts) most = std::max(most, of_rank[column(level)]);
  return most + 1;
}

/// Returns, for each part of a level, whether it holds a rank that is near its host's NIC.
std::vector<bool> near_nic(const std::vector<Parts>& parts, const std::vector<PeerInfo>& peers,
                           Level level) {
  std::vector<bool> near(static_cast<std::size_t>(count(parts, level)));
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    const RankPlace& place = peers[rank].place;
    if (place.nic_numa < 0 || place.numa != place.nic_numa) continue;
    near[static_cast<std::size_t>(parts[rank][column(level)])] = true;
  }
  return near;
}

std::vector<int> order_of(const std::vector<Parts>& parts, const std::vector<PeerInfo>& peers) {
  const bool hosts = count(parts, Level::kHost) > 1;
  // For each level the number of the part; larger for parts that are far from the NIC.
  std::vector<Parts> keys = parts;
  for (const Level level : {Level::kPackage, Level::kNuma}) {
    if (!hosts || count(parts, level) == count(parts, Level::kHost)) continue;
    const auto near = near_nic(parts, peers, level);
    for (Parts& of_rank : keys) {
      int& part = of_rank[column(level)];
      if (!near[static_cast<std::size_t>(part)]) part += static_cast<int>(near.size());
    }
  }
  std::vector<int> order(parts.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return keys[static_cast<std::size_t>(a)] < keys[static_cast<std::size_t>(b)];
  });
  return order;
}

/// Returns the numbers of ranks in the parts of a level, in the order of places.
std::vector<int> sizes_of(const std::vector<Parts>& parts, const std::vector<int>& order,
                          Level level) {
  std::vector<int> sizes;
  int last = -1;
  for (const int rank : order) {
    const int part = parts[static_cast<std::size_t>(rank)][column(level)];
    if (part != last) sizes.push_back(0);
    ++sizes.back();
    last = part;
  }
  return sizes;
}

bool all_equal(const std::vector<int>& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [&](int size) { return size == sizes.front(); });
}

/// Returns the levels that may divide the ranks, innermost first.
std::vector<Level> candidates(const std::vector<Parts>& parts) {
  if (count(parts, Level::kHost) > 1) return {Level::kHost, Level::kLeaf, Level::kPod};
  for (const Level level : {Level::kPackage, Level::kNuma, Level::kCache}) {
    if (count(parts, level) > 1) return {level};
  }
  return {};
}

/// Returns whether messages between the parts of a level cost more than those within: unless these
/// are switches whose links outwards carry all that the job's hosts below can send.
bool is_step(const std::vector<Parts>& parts, const std::vector<PeerInfo>& peers, Level level) {
  if (level != Level::kLeaf && level != Level::kPod) return true;
  std::map<int, double> sent; // by part
  std::map<int, bool> hosts;  // those that have been counted
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    const RankPlace& place = peers[rank].place;
    const double out = level == Level::kLeaf ? place.leaf_gb_per_s : place.pod_gb_per_s;
    if (out <= 0 || place.nic_gb_per_s <= 0) return true; // unknown
    if (!hosts.emplace(parts[rank][column(Level::kHost)], true).second) continue;
    double& sum = sent[parts[rank][column(level)]];
    sum += place.nic_gb_per_s;
    if (sum > out * 1.001) return true;
  }
  return false;
}

/// Describes sizes of groups: "2 × 4" or "5 + 3".
std::string text_of(const std::vector<int>& sizes) {
  if (all_equal(sizes)) return fmt::format("{} × {}", sizes.size(), sizes.front());
  constexpr std::size_t kMany = 8;
  if (sizes.size() <= kMany) return fmt::format("{}", fmt::join(sizes, " + "));
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  return fmt::format("{} to {} each", *least, *most);
}

std::string_view plural_of(Level level) {
  switch (level) {
    case Level::kCache:
      return "caches";
    case Level::kNuma:
      return "NUMA nodes";
    case Level::kPackage:
      return "packages";
    case Level::kHost:
      return "hosts";
    case Level::kLeaf:
      return "leaf switches";
    case Level::kPod:
      break;
  }
  return "groups of switches";
}

} // namespace

Arrangement arrange(const std::vector<PeerInfo>& peers) {
  const std::vector<Parts> parts = parts_of(peers);
  Arrangement found{.order = order_of(parts, peers)};
  const int nranks = static_cast<int>(peers.size());
  int inside = 1; // number of ranks in a group of the levels so far
  for (const Level level : candidates(parts)) {
    const std::vector<int> sizes = sizes_of(parts, found.order, level);
    const int most = *std::max_element(sizes.begin(), sizes.end());
    if (most == 1 || sizes.size() == 1 || !is_step(parts, peers, level)) continue;
    if (!all_equal(sizes)) {
      if (found.dims.empty()) found.groups = sizes;
      break; // levels further out would have to consist of equal groups
    }
    if (most == inside) continue;
    found.dims.push_back({.size = most / inside, .algorithm = {}});
    inside = most;
  }
  if (!found.dims.empty()) found.dims.push_back({.size = nranks / inside, .algorithm = {}});
  if (std::is_sorted(found.order.begin(), found.order.end())) found.order.clear();
  return found;
}

std::vector<int> Arrangement::ranks(std::size_t count) const {
  if (!order.empty()) return order;
  std::vector<int> all(count);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::string describe(const Arrangement& arrangement, const std::vector<PeerInfo>& peers) {
  const std::vector<Parts> parts = parts_of(peers);
  const std::vector<int> order = arrangement.ranks(peers.size());
  std::string text = fmt::format("{} rank{}", peers.size(), peers.size() == 1 ? "" : "s");
  std::string separator = " on ";
  for (std::size_t i = kLevels; i-- > 0;) {
    const auto level = static_cast<Level>(i);
    const std::vector<int> sizes = sizes_of(parts, order, level);
    const int above = i == 0 ? 1 : count(parts, static_cast<Level>(i - 1));
    if (level == Level::kHost && sizes.size() == 1) {
      text += separator + "1 host";
    } else if (static_cast<int>(sizes.size()) > above) {
      text +=
          fmt::format("{}{} {} ({})", separator, sizes.size(), plural_of(level), text_of(sizes));
    } else {
      continue; // each part is all of the part above
    }
    separator = ", ";
  }
  if (!arrangement.order.empty()) text += ", numbered across them";
  return text;
}

std::uint64_t topology_digest(const std::vector<PeerInfo>& peers) {
  Hash hash;
  const std::vector<Parts> parts = parts_of(peers);
  std::map<std::uint64_t, std::uint64_t> machines;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    for (const int part : parts[rank]) hash.mix(static_cast<std::uint64_t>(part));
    hash.mix(machines.emplace(peers[rank].machine_key, machines.size()).first->second);
    const RankPlace& place = peers[rank].place;
    for (const double rate : {place.nic_gb_per_s, place.leaf_gb_per_s, place.pod_gb_per_s}) {
      hash.mix(static_cast<std::uint64_t>(rate * 1e3)); // MB/s
    }
  }
  return hash.value();
}

} // namespace whorl
