#include "topology/rings.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "topology/paths.h"

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

/// Sets the bandwidth of one copy of a ring: that of its narrowest part.
void set_bandwidth(const Graph& graph, Ring& ring) {
  ring.bandwidth = {};
  for (std::size_t i = 0; i < ring.order.size(); ++i) {
    const Path path = find_path(graph, ring.order[i], ring.order[(i + 1) % ring.order.size()]);
    Bandwidth part = path.bandwidth;
    if (ring.over_links && path.links > 0) part.gb_per_s /= path.links;
    if (part.known() && (!ring.bandwidth.known() || part.gb_per_s < ring.bandwidth.gb_per_s)) {
      ring.bandwidth = part;
    }
  }
}

/// Returns one ring in the order given, and how often it can be used where switches connect all
/// devices.
Ring ring_in_order(const Graph& graph, std::vector<int> order) {
  Ring ring{.order = std::move(order), .over_links = true};
  int links = INT32_MAX;
  for (std::size_t i = 0; i < ring.order.size(); ++i) {
    const Path path = find_path(graph, ring.order[i], ring.order[(i + 1) % ring.order.size()]);
    if (path.path_class != PathClass::kLink) ring.over_links = false;
    links = std::min(links, path.links);
  }
  if (ring.over_links) ring.copies = std::max(links, 1);
  set_bandwidth(graph, ring);
  return ring;
}

} // namespace

std::vector<Ring> find_rings(const Graph& graph, std::vector<int> devices) {
  if (devices.size() < 2) return {};
  // Nodes are in the order of a walk of the tree: everything below a node is consecutive.
  std::sort(devices.begin(), devices.end());
  const RingSearch::Rings found = RingSearch(count_links(graph, devices)).run();
  if (found.empty()) return {ring_in_order(graph, std::move(devices))};
  std::map<Order, int> copies;
  for (const auto& [order, count] : found) copies[order] += count;
  std::vector<Ring> rings;
  for (const auto& [order, count] : copies) {
    Ring ring{.over_links = true, .copies = count};
    for (const int place : order) ring.order.push_back(devices[static_cast<std::size_t>(place)]);
    set_bandwidth(graph, ring);
    rings.push_back(std::move(ring));
  }
  return rings;
}

} // namespace whorl::topology
