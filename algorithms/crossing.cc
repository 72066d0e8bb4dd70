#include "algorithms/crossing.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace whorl {
namespace {

/// Number of places whose schedules stand for all.
constexpr int kSample = 32;

/// Schedules of some places, each built once.
class Schedules {
 public:
  Schedules(const Algorithm& algorithm, const Shape& shape)
      : algorithm_(algorithm), shape_(shape) {}
  const Schedule& of(int place) {
    const auto found = known_.find(place);
    if (found != known_.end()) return found->second;
    return known_.emplace(place, algorithm_.build_place(shape_, place)).first->second;
  }

 private:
  const Algorithm& algorithm_;
  const Shape& shape_;
  std::map<int, Schedule> known_;
};

/// Counts the chunks that a group sends or receives over its boundary, whichever are more.
double crossing(Schedules& schedules, int first, int end) {
  const auto outside = [&](const Lane& lane, int index, int fan) {
    int count = 0;
    for (int i = 0; i < fan; ++i) {
      const auto peer = static_cast<int>(lane.peers[static_cast<std::size_t>(index + i)]);
      count += peer < first || peer >= end ? 1 : 0;
    }
    return count;
  };
  const int places = std::min(end - first, kSample);
  double sent = 0, received = 0;
  for (int i = 0; i < places; ++i) {
    const Schedule& schedule = schedules.of(first + i * (end - first) / places);
    for (const Lane& lane : schedule.lanes) {
      for (const Step& step : lane.steps) {
        const double moved = step.count * step.repeat;
        sent += moved * outside(lane, step.tx, step.fan_out());
        received += moved * outside(lane, step.rx, step.fan_in());
      }
    }
  }
  return std::max(sent, received) * (end - first) / places;
}

} // namespace

std::array<double, kMaxLevels - 1> crossings(const Algorithm& algorithm, const Shape& shape) {
  std::array<double, kMaxLevels - 1> found{};
  Schedules schedules(algorithm, shape);
  const Schedule& root = schedules.of(shape.root); // has the larger side
  const double chunks = std::max<double>({1.0, 1.0 * root.input_chunks, 1.0 * root.output_chunks});
  const auto all = divisions(shape);
  for (std::size_t level = 0; level < all.size(); ++level) {
    const std::vector<int>& starts = all[level];
    const auto size = [&](std::size_t group) { return starts[group + 1] - starts[group]; };
    std::size_t largest = 0, of_root = 0;
    std::set<std::size_t> counted;
    for (std::size_t group = 0; group + 1 < starts.size(); ++group) {
      if (size(group) > size(largest)) largest = group;
      if (starts[group] <= shape.root) of_root = group;
      if (shape.nranks <= kSample) counted.insert(group);
    }
    counted.insert({largest, of_root});
    for (const std::size_t group : counted) {
      found[level] = std::max(found[level], crossing(schedules, starts[group], starts[group + 1]));
    }
    found[level] /= chunks;
  }
  return found;
}

double least_crossing(Collective collective, const std::vector<int>& sizes) {
  const double n = std::accumulate(sizes.begin(), sizes.end(), 0);
  const double m = static_cast<double>(sizes.size());
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  if (m < 2) return 0;
  switch (collective) {
    case Collective::kAllReduce:
      return 2 * (m - 1) / m;
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      return (n - *least) / n; // the smallest group needs most
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kSend:
    case Collective::kRecv:
      return 1;
    case Collective::kAllToAll: {
      // Each rank has n blocks, one for each other rank.
      double largest = 0;
      for (const double size : sizes) largest = std::max(largest, size * (n - size) / n);
      return largest;
    }
    case Collective::kGather:
    case Collective::kScatter:
      return (n - *most) / n; // of a root in the largest group
    case Collective::kBarrier:
      break;
  }
  return 0;
}

} // namespace whorl
