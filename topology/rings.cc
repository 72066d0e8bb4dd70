#include "topology/rings.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>

#include "topology/paths.h"
#include "topology/ring_packing.h"
#include "topology/routes.h"

namespace whorl::topology {
namespace {

using Order = std::vector<int>; ///< places among the devices

/// Search for Hamiltonian cycles that share no arc. An arc is one link in one direction.
class RingSearch {
 public:
  using Rings = std::vector<std::pair<Order, int>>; ///< cycles, and the number of copies

  explicit RingSearch(std::vector<std::vector<int>> arcs) : arcs_(std::move(arcs)) {}

  /// Returns as many cycles as the search finds; the same ones every time.
  Rings run() {
    const std::size_t count = arcs_.size();
    most_ = INT32_MAX;
    for (std::size_t i = 0; i < count; ++i) {
      long out = 0, in = 0;
      for (std::size_t j = 0; j < count; ++j) out += arcs_[i][j], in += arcs_[j][i];
      most_ = std::min({most_, out, in});
    }
    if (most_ > 0) extend({0});
    return best_;
  }

 private:
  /// Continues the cycle that begins with `order`. Returns true when the search is over.
  bool extend(Order order) {
    if ((budget_ -= static_cast<long>(arcs_.size())) < 0) return true;
    const int last = order.back();
    if (order.size() == arcs_.size()) return arcs_[at(last)][0] > 0 && close(order);
    // The neighbour with most links first: the others are left for the later cycles.
    Order next;
    for (int i = 0; i < static_cast<int>(arcs_.size()); ++i) {
      if (arcs_[at(last)][at(i)] > 0 && std::find(order.begin(), order.end(), i) == order.end()) {
        next.push_back(i);
      }
    }
    std::stable_sort(next.begin(), next.end(),
                     [&](int a, int b) { return arcs_[at(last)][at(a)] > arcs_[at(last)][at(b)]; });
    for (const int i : next) {
      order.push_back(i);
      if (extend(order)) return true;
      order.pop_back();
    }
    return false;
  }

  /// Takes a complete cycle, as often as links permit or else once, and searches for more beside
  /// it.
  bool close(const Order& order) {
    int most = INT32_MAX;
    for (std::size_t i = 0; i < order.size(); ++i) most = std::min(most, arc_after(order, i));
    for (const int copies : {most, 1}) {
      take(order, copies);
      found_.emplace_back(order, copies);
      copies_ += copies;
      if (copies_ > best_copies_) {
        best_ = found_;
        best_copies_ = copies_;
      }
      constexpr std::size_t kMaxRings = 64; // also bounds the depth of the recursion
      if (best_copies_ >= most_ || (found_.size() < kMaxRings && extend({0}))) return true;
      copies_ -= copies;
      found_.pop_back();
      take(order, -copies);
      if (most == 1) break;
    }
    return false;
  }

  void take(const Order& order, int copies) {
    for (std::size_t i = 0; i < order.size(); ++i) arc_after(order, i) -= copies;
  }
  int& arc_after(const Order& order, std::size_t i) {
    return arcs_[at(order[i])][at(order[(i + 1) % order.size()])];
  }
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  std::vector<std::vector<int>> arcs_; ///< number of arcs that are left
  Rings found_, best_;
  long copies_ = 0, best_copies_ = 0, most_ = 0;
  long budget_ = 4'000'000; ///< work: a second, of which few machines need a thousandth
};

/// Returns the number of links between devices; no links where switches connect the devices.
std::vector<std::vector<int>> count_links(const Graph& graph, const std::vector<int>& devices) {
  std::vector<std::vector<int>> counts(devices.size(), std::vector<int>(devices.size()));
  for (const Link& link : graph.links) {
    const auto a = std::lower_bound(devices.begin(), devices.end(), link.a);
    const auto b = std::lower_bound(devices.begin(), devices.end(), link.b);
    if (a == devices.end() || b == devices.end() || *a != link.a || *b != link.b) continue;
    const auto row = static_cast<std::size_t>(a - devices.begin());
    const auto column = static_cast<std::size_t>(b - devices.begin());
    counts[row][column] += std::max(link.count, 1);
    counts[column][row] += std::max(link.count, 1);
  }
  return counts;
}

RingWay way_of(std::size_t over_links, std::size_t hops) {
  if (over_links == 0) return RingWay::kTree;
  return over_links == hops ? RingWay::kLinks : RingWay::kMixed;
}

/// Narrows the bandwidth of a ring to that of one of `links` that carry `part` together.
void narrow(Bandwidth& ring, Bandwidth part, int links) {
  if (links > 0) part.gb_per_s /= links;
  if (part.known() && (!ring.known() || part.gb_per_s < ring.gb_per_s)) ring = part;
}

/// Returns one ring in the order of the tree, and how often it can be used where switches connect
/// all devices.
Ring ring_in_order(const Graph& graph, const std::vector<int>& devices) {
  std::vector<Path> paths;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    paths.push_back(find_path(graph, devices[i], devices[(i + 1) % devices.size()]));
  }
  const auto over_links = std::count_if(paths.begin(), paths.end(), [](const Path& path) {
    return path.path_class == PathClass::kLink;
  });
  Ring ring{.order = devices, .way = way_of(static_cast<std::size_t>(over_links), paths.size())};
  const bool alone = ring.way == RingWay::kLinks;
  int copies = INT32_MAX;
  for (const Path& path : paths) {
    copies = std::min(copies, path.links);
    narrow(ring.bandwidth, path.bandwidth, alone ? path.links : 1);
  }
  if (alone) ring.copies = std::max(copies, 1);
  return ring;
}

/// Returns the rings over links, which share no link in the same direction; without any, one ring
/// in the order of the tree.
std::vector<Ring> find_simple_rings(const Graph& graph, const std::vector<int>& devices) {
  const std::vector<std::vector<int>> links = count_links(graph, devices);
  const RingSearch::Rings found = RingSearch(links).run();
  if (found.empty()) return {ring_in_order(graph, devices)};
  std::map<Order, int> copies;
  for (const auto& [order, count] : found) copies[order] += count;
  std::vector<Ring> rings;
  for (const auto& [order, count] : copies) {
    Ring ring{.way = RingWay::kLinks, .copies = count};
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto from = static_cast<std::size_t>(order[i]);
      const auto to = static_cast<std::size_t>(order[(i + 1) % order.size()]);
      ring.order.push_back(devices[from]);
      narrow(ring.bandwidth, direct_links(graph, devices[from], devices[to]).bandwidth,
             links[from][to]);
    }
    rings.push_back(std::move(ring));
  }
  return rings;
}

/// Returns a ring of those that share parts.
Ring shared_ring(const Routes& routes, const std::vector<int>& devices, const PackedRing& packed) {
  Ring ring{.bandwidth = {.gb_per_s = packed.gb_per_s, .origin = Origin::kReported}};
  std::size_t over_links = 0;
  for (std::size_t i = 0; i < packed.order.size(); ++i) {
    const std::size_t from = packed.order[i], to = packed.order[(i + 1) % packed.order.size()];
    ring.order.push_back(devices[from]);
    if (routes.over_links(from, to)) ++over_links;
    for (const std::size_t part : routes.between(from, to)) {
      // Capacity that one ring leaves is another's, so every figure counts.
      if (routes.parts()[part].origin == Origin::kTable) ring.bandwidth.origin = Origin::kTable;
    }
  }
  ring.way = way_of(over_links, packed.order.size());
  return ring;
}

double sum_of(const std::vector<PackedRing>& rings) {
  return std::accumulate(rings.begin(), rings.end(), 0.0,
                         [](double sum, const PackedRing& ring) { return sum + ring.gb_per_s; });
}

/// Adds rings that share parts to those that do not, or replaces these, where that is worth it.
void share_parts(const Routes& routes, const std::vector<int>& devices, std::vector<Ring>& rings) {
  RingPacking packing(routes);
  std::vector<double> left;
  for (const Bandwidth& part : routes.parts()) left.push_back(part.gb_per_s);
  const std::vector<double> capacities = left;
  double best = 0;
  for (const Ring& ring : rings) {
    PackedRing packed{.gb_per_s = ring.bandwidth.gb_per_s * ring.copies};
    for (const int device : ring.order) {
      const auto place = std::lower_bound(devices.begin(), devices.end(), device);
      packed.order.push_back(static_cast<std::size_t>(place - devices.begin()));
    }
    packing.take(packed, left);
    best += packed.gb_per_s;
  }
  const double kept = best;
  std::vector<PackedRing> chosen;
  bool instead = false;
  const auto consider = [&](std::vector<PackedRing> packed, double beside) {
    constexpr double kWorth = 1.03; // less than 3 % do not outweigh more rings
    const double sum = beside + sum_of(packed);
    if (sum <= best * kWorth) return;
    best = sum;
    chosen = std::move(packed);
    instead = beside == 0;
  };
  consider(packing.pack(left, 1), kept);
  // Rings that each carry a part only can share what one would take alone.
  for (const double share : {1.0, 1.0 / 2, 1.0 / 4}) consider(packing.pack(capacities, share), 0);
  if (instead) rings.clear();
  for (const PackedRing& ring : chosen) rings.push_back(shared_ring(routes, devices, ring));
}

} // namespace

std::string_view name_of(RingWay way) {
  constexpr std::array<std::string_view, 3> kNames = {"links", "tree", "mixed"};
  return kNames.at(static_cast<std::size_t>(way));
}

std::vector<Ring> find_rings(const Graph& graph, std::vector<int> devices) {
  if (devices.size() < 2) return {};
  // Nodes are in the order of a walk of the tree: everything below a node is consecutive.
  std::sort(devices.begin(), devices.end());
  std::vector<Ring> rings = find_simple_rings(graph, devices);
  constexpr std::size_t kMaxShared = 256; // devices; no machine has as many, but files can
  const bool known = std::all_of(rings.begin(), rings.end(),
                                 [](const Ring& ring) { return ring.bandwidth.known(); });
  if (known && !graph.links.empty() && devices.size() <= kMaxShared) {
    share_parts(Routes(graph, devices), devices, rings);
  }
  return rings;
}

} // namespace whorl::topology
