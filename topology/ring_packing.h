#pragma once

#include <cstddef>
#include <vector>

#include "topology/routes.h"

namespace whorl::topology {

using Places = std::vector<std::size_t>; ///< places of a ring's devices among all devices, in order

/// Ring and the GB/s that it carries beside other rings.
struct PackedRing {
  Places order;
  double gb_per_s = 0;
};

/// Search for rings that run at the same time and together carry much, over capacity that is left
/// of the parts of a machine: one ring after the other, each the cheapest that local search finds
/// if a part costs more the less of its capacity is left.
class RingPacking {
 public:
  explicit RingPacking(const Routes& routes);

  /// Returns the GB/s of a ring over what is `left` of the parts; infinite if the ring passes none
  /// whose capacity is known.
  double rate_of(const Places& order, const std::vector<double>& left) const;
  /// Takes the capacity that a ring uses.
  void take(const PackedRing& ring, std::vector<double>& left) const;
  /// Returns rings over what is `left` of the parts. None carries more than `share` of what the
  /// first one could, so that rings which compete for a part can share the part.
  std::vector<PackedRing> pack(std::vector<double> left, double share);

 private:
  /// Sets the costs of all hops by what is `left` of the parts on them.
  void set_costs(const std::vector<double>& left);
  double cost(std::size_t from, std::size_t to) const { return costs_[from * size_ + to]; }
  double cost_of(const Places& order) const;
  Places cheapest_order();
  /// Returns the order that begins at a device and goes on with the cheapest one every time.
  Places nearest_first(std::size_t first) const;
  /// Makes an order cheaper by moving and reversing parts of the order, as long as that helps.
  void improve(Places& order);
  bool improve_from_front(Places& order);

  const Routes& routes_;
  std::size_t size_;
  std::vector<double> costs_; ///< costs of hops, by pairs of devices
  long budget_ = 60'000'000;  ///< moves to try: a second at most, of which few machines need much
};

} // namespace whorl::topology
