#include <algorithm>
#include <iterator>

#include "algorithms/algorithm.h"
#include "algorithms/binomial.h"
#include "algorithms/bruck.h"
#include "algorithms/circulant.h"
#include "algorithms/direct.h"
#include "algorithms/doubling.h"
#include "algorithms/halving_doubling.h"
#include "algorithms/hierarchical.h"
#include "algorithms/leaders.h"
#include "algorithms/oneshot.h"
#include "algorithms/pairwise.h"
#include "algorithms/relabel.h"
#include "algorithms/ring.h"
#include "algorithms/tree.h"
#include "algorithms/twoshot.h"
#include "schedule/builder.h"

namespace whorl {
namespace {

/// Families of algorithms in the order in which they win at equal cost.
constexpr auto kFamilies = {
    oneshot_algorithms,          direct_algorithms,    twoshot_algorithms,  doubling_algorithms,
    halving_doubling_algorithms, circulant_algorithms, binomial_algorithms, bruck_algorithms,
    pairwise_algorithms,         tree_algorithms,      ring_algorithms,     leaders_algorithms,
    hierarchical_algorithms};

std::vector<Algorithm> collect() {
  std::vector<Algorithm> all;
  for (const auto family : kFamilies) {
    const std::span<const Algorithm> algorithms = family();
    all.insert(all.end(), algorithms.begin(), algorithms.end());
  }
  std::stable_sort(all.begin(), all.end(), [](const Algorithm& a, const Algorithm& b) {
    return a.collective < b.collective;
  });
  return all;
}

} // namespace

std::span<const Algorithm> all_algorithms() {
  // The list is never destroyed, because it may be in use while the process ends.
  static const auto& all = *new std::vector<Algorithm>(collect());
  return all;
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective == collective && algorithm.name == name) return &algorithm;
  }
  return nullptr;
}

Schedule Algorithm::build_place(const Shape& shape, int place) const {
  if (shape.nranks > 1) return build_several(shape, place);
  ScheduleBuilder builder(1, 0, 1);
  builder.lane(0).copy(0, 0); // any collective of a single rank: its output is its input
  return std::move(builder).build();
}

Schedule build_schedule(const Algorithm& algorithm, const Shape& shape, int rank) {
  const std::vector<int>& order = shape.order;
  // A transfer goes from rank 0 to rank 1 in any order.
  const bool transfer =
      algorithm.collective == Collective::kSend || algorithm.collective == Collective::kRecv;
  if (transfer || std::is_sorted(order.begin(), order.end()))
    return algorithm.build_place(shape, rank);
  const auto place_of = [&](int which) {
    return static_cast<int>(std::find(order.begin(), order.end(), which) - order.begin());
  };
  Shape places = shape;
  places.root = place_of(shape.root);
  return relabel(algorithm.build_place(places, place_of(rank)), order);
}

std::vector<Schedule> build_all(const Algorithm& algorithm, const Shape& shape) {
  std::vector<Schedule> schedules;
  schedules.reserve(static_cast<std::size_t>(shape.nranks));
  for (int rank = 0; rank < shape.nranks; ++rank) {
    schedules.push_back(build_schedule(algorithm, shape, rank));
  }
  return schedules;
}

} // namespace whorl
