#include "topology/ring_packing.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

namespace whorl::topology {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
/// Part of a capacity that counts as nothing.
constexpr double kNothing = 1e-6;
/// Cost of a part of which nothing is left; much more than that of all others.
constexpr double kForbidden = 1e6;
constexpr std::size_t kMaxRings = 32, kMaxStarts = 16;

} // namespace

RingPacking::RingPacking(const Routes& routes)
    : routes_(routes), size_(routes.size()), costs_(size_ * size_) {}

double RingPacking::rate_of(const Places& order, const std::vector<double>& left) const {
  std::map<std::size_t, int> uses;
  for (std::size_t i = 0; i < size_; ++i) {
    for (const std::size_t part : routes_.between(order[i], order[(i + 1) % size_])) ++uses[part];
  }
  double rate = kUnlimited;
  for (const auto& [part, count] : uses) rate = std::min(rate, left[part] / count);
  return rate;
}

void RingPacking::take(const PackedRing& ring, std::vector<double>& left) const {
  for (std::size_t i = 0; i < size_; ++i) {
    for (const std::size_t part : routes_.between(ring.order[i], ring.order[(i + 1) % size_])) {
      left[part] = std::max(left[part] - ring.gb_per_s, 0.0);
    }
  }
}

std::vector<PackedRing> RingPacking::pack(std::vector<double> left, double share) {
  std::map<Places, double> rings;
  double most = kUnlimited;
  for (std::size_t i = 0; i < kMaxRings; ++i) {
    set_costs(left);
    PackedRing ring{.order = cheapest_order()};
    ring.gb_per_s = rate_of(ring.order, left);
    if (ring.gb_per_s == kUnlimited) break; // nothing says how much it carries
    if (i == 0) most = ring.gb_per_s * share;
    constexpr double kLeast = 1.0 / 16;
    if (ring.gb_per_s <= 0 || ring.gb_per_s < most * kLeast) break;
    ring.gb_per_s = std::min(ring.gb_per_s, most);
    take(ring, left);
    rings[ring.order] += ring.gb_per_s;
  }
  std::vector<PackedRing> packed;
  for (const auto& [order, rate] : rings) packed.push_back({order, rate});
  std::stable_sort(packed.begin(), packed.end(), [](const PackedRing& a, const PackedRing& b) {
    return a.gb_per_s > b.gb_per_s;
  });
  return packed;
}

void RingPacking::set_costs(const std::vector<double>& left) {
  double most = 0;
  for (const Bandwidth& part : routes_.parts()) most = std::max(most, part.gb_per_s);
  for (std::size_t i = 0; i < size_; ++i) {
    for (std::size_t j = 0; j < size_; ++j) {
      double& cost = costs_[i * size_ + j];
      cost = 0;
      if (i == j) continue;
      for (const std::size_t part : routes_.between(i, j)) {
        const bool some = left[part] > routes_.parts()[part].gb_per_s * kNothing;
        cost += some ? std::min(most / left[part], kForbidden) : kForbidden;
      }
    }
  }
}

double RingPacking::cost_of(const Places& order) const {
  double sum = 0;
  for (std::size_t i = 0; i < size_; ++i) sum += cost(order[i], order[(i + 1) % size_]);
  return sum;
}

Places RingPacking::cheapest_order() {
  Places best(size_);
  std::iota(best.begin(), best.end(), 0); // the order of the tree, which crosses boundaries once
  improve(best);
  double least = cost_of(best);
  for (std::size_t start = 0; start < std::min(size_, kMaxStarts); ++start) {
    Places order = nearest_first(start);
    improve(order);
    if (const double sum = cost_of(order); sum < least * (1 - 1e-9)) {
      least = sum;
      best = std::move(order);
    }
  }
  std::rotate(best.begin(), std::find(best.begin(), best.end(), 0), best.end());
  return best;
}

Places RingPacking::nearest_first(std::size_t first) const {
  Places order(size_);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[0], order[first]);
  for (std::size_t i = 1; i < size_; ++i) {
    const auto next = std::min_element(order.begin() + static_cast<std::ptrdiff_t>(i), order.end(),
                                       [&](std::size_t a, std::size_t b) {
                                         return cost(order[i - 1], a) < cost(order[i - 1], b);
                                       });
    std::iter_swap(order.begin() + static_cast<std::ptrdiff_t>(i), next);
  }
  return order;
}

void RingPacking::improve(Places& order) {
  for (std::size_t unchanged = 0; unchanged < size_; ++unchanged) {
    std::rotate(order.begin(), order.begin() + 1, order.end());
    while (budget_ > 0 && improve_from_front(order)) unchanged = 0;
    if (budget_ <= 0) return;
  }
}

bool RingPacking::improve_from_front(Places& order) {
  const double enough = 1e-9 * cost_of(order); // sums are rounded
  const std::size_t front = order[0], last = order[size_ - 1];
  double turned = 0; // additional cost of the part if it is reversed
  for (std::size_t end = 1; end < size_; ++end) {
    const std::size_t back = order[end - 1];
    if (end > 1) turned += cost(back, order[end - 2]) - cost(order[end - 2], back);
    const double gap = cost(last, order[end]) - cost(last, front) - cost(back, order[end]);
    for (std::size_t to = end; to < size_; ++to) {
      --budget_;
      // The part moves between these two; at the end of the order it stays where it is.
      const bool stays = to + 1 == size_;
      const std::size_t before = order[to], after = stays ? order[end] : order[to + 1];
      const double opened = stays ? -cost(last, order[end]) : -cost(before, after);
      const double plain = gap + opened + cost(before, front) + cost(back, after);
      const double reversed = gap + opened + cost(before, back) + cost(front, after) + turned;
      if (std::min(plain, reversed) >= -enough) continue;
      const auto begin = order.begin(), middle = begin + static_cast<std::ptrdiff_t>(end);
      if (reversed < plain) std::reverse(begin, middle);
      if (!stays) std::rotate(begin, middle, begin + static_cast<std::ptrdiff_t>(to) + 1);
      return true;
    }
  }
  return false;
}

} // namespace whorl::topology
