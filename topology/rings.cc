#include "topology/rings.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "topology/paths.h"

namespace whorl::topology {
namespace {

using Order = std::vector<int>; ///< places among the devices

/// Search for Hamiltonian cycles that share no arc. An arc is one link in one direction.
class RingSearch {
 public:
  explicit RingSearch(std::vector<std::vector<int>> arcs) : arcs_(std::move(arcs)) {}

  /// Returns as many cycles as the search finds; the same ones every time.
  std::vector<Order> run() {
    const std::size_t count = arcs_.size();
    most_ = INT32_MAX;
    for (std::size_t i = 0; i < count; ++i) {
      int out = 0, in = 0;
      for (std::size_t j = 0; j < count; ++j) out += arcs_[i][j], in += arcs_[j][i];
      most_ = std::min({most_, out, in});
    }
    extend({0});
    return best_;
  }

 private:
  /// Continues the cycle that begins with `order`. Returns true when the search is over.
  bool extend(Order order) {
    if (--budget_ < 0) return true;
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

  /// Takes a complete cycle and searches for more beside it.
  bool close(const Order& order) {
    take(order, -1);
    found_.push_back(order);
    if (found_.size() > best_.size()) best_ = found_;
    if (static_cast<int>(best_.size()) >= most_ || extend({0})) return true;
    found_.pop_back();
    take(order, 1);
    return false;
  }

  void take(const Order& order, int arcs) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      arcs_[at(order[i])][at(order[(i + 1) % order.size()])] += arcs;
    }
  }
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  std::vector<std::vector<int>> arcs_; ///< number of arcs that are left
  std::vector<Order> found_, best_;
  int most_ = 0;
  long budget_ = 500'000; ///< steps: a second, and few machines need a thousandth of them
};

/// Returns the number of links between devices, and the bandwidth of the slowest; nothing where
/// switches connect devices.
std::vector<std::vector<int>> count_links(const Graph& graph, const std::vector<int>& devices,
                                          Bandwidth& each) {
  std::vector<std::vector<int>> counts(devices.size(), std::vector<int>(devices.size()));
  for (const Link& link : graph.links) {
    const auto a = std::find(devices.begin(), devices.end(), link.a) - devices.begin();
    const auto b = std::find(devices.begin(), devices.end(), link.b) - devices.begin();
    const auto size = static_cast<std::ptrdiff_t>(devices.size());
    if (a == size || b == size) continue;
    const int links = std::max(link.count, 1);
    counts[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] += links;
    counts[static_cast<std::size_t>(b)][static_cast<std::size_t>(a)] += links;
    const Bandwidth one{.gb_per_s = link.bandwidth.gb_per_s / links,
                        .origin = link.bandwidth.origin};
    if (one.known() && (!each.known() || one.gb_per_s < each.gb_per_s)) each = one;
  }
  return counts;
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
    if (path.bandwidth.known() &&
        (!ring.bandwidth.known() || path.bandwidth.gb_per_s < ring.bandwidth.gb_per_s)) {
      ring.bandwidth = path.bandwidth;
    }
  }
  if (ring.over_links && links > 0) {
    ring.copies = links;
    ring.bandwidth.gb_per_s /= links;
  }
  return ring;
}

} // namespace

std::vector<Ring> find_rings(const Graph& graph, std::vector<int> devices) {
  if (devices.size() < 2) return {};
  // Nodes are in the order of a walk of the tree: everything below a node is consecutive.
  std::sort(devices.begin(), devices.end());
  Bandwidth each;
  const std::vector<Order> found = RingSearch(count_links(graph, devices, each)).run();
  if (found.empty()) return {ring_in_order(graph, std::move(devices))};
  std::map<Order, int> copies;
  for (const Order& order : found) ++copies[order];
  std::vector<Ring> rings;
  for (const auto& [order, times] : copies) {
    Ring ring{.over_links = true, .copies = times, .bandwidth = each};
    for (const int place : order) ring.order.push_back(devices[static_cast<std::size_t>(place)]);
    rings.push_back(std::move(ring));
  }
  return rings;
}

} // namespace whorl::topology
