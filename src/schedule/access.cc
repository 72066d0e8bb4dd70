#include "schedule/access.h"

#include <algorithm>

namespace whorl {

AccessOrder::AccessOrder(std::span<const Schedule> schedules, const ChunkLayout& layout,
                         int windows) {
  int first_lane = 0;
  std::size_t entries = 0;
  for (const Schedule& schedule : schedules) {
    const int lanes = static_cast<int>(schedule.lanes.size());
    const std::uint32_t first = layout.first_cell(schedule.rank);
    ranks_.push_back({lanes, first_lane, first, entries});
    if (lanes >= 2) {
      entries += static_cast<std::size_t>(layout.first_cell(schedule.rank + 1) - first) *
                 static_cast<std::size_t>(lanes);
    }
    for (const Lane& lane : schedule.lanes) {
      clocks_.emplace_back(lanes >= 2 ? schedule.lanes.size() : 0, 0U);
      for (const Step& step : lane.steps) {
        if (!step.waits()) continue;
        snapshots_[{first_lane + step.tx, step.rx}].resize(static_cast<std::size_t>(windows));
      }
    }
    first_lane += lanes;
  }
  // A lane's own time starts at 1.
  for (const Rank& rank : ranks_) {
    for (int l = 0; l < rank.lanes && rank.lanes >= 2; ++l) {
      clocks_[static_cast<std::size_t>(rank.first_lane + l)][static_cast<std::size_t>(l)] = 1;
    }
  }
  accesses_.resize(entries);
}

int AccessOrder::read_shared(const Rank& rank, const StepEvent& event, std::uint32_t cell) {
  Access* const of_lane = accesses(rank, cell);
  const auto& clock = clocks_[static_cast<std::size_t>(event.global_lane)];
  const auto self = static_cast<std::size_t>(event.lane);
  of_lane[self].read = clock[self];
  for (std::size_t l = 0; l < clock.size(); ++l) {
    if (l != self && of_lane[l].write > clock[l]) return static_cast<int>(l);
  }
  return -1;
}

int AccessOrder::write_shared(const Rank& rank, const StepEvent& event, std::uint32_t cell) {
  Access* const of_lane = accesses(rank, cell);
  const auto& clock = clocks_[static_cast<std::size_t>(event.global_lane)];
  const auto self = static_cast<std::size_t>(event.lane);
  of_lane[self].write = clock[self];
  for (std::size_t l = 0; l < clock.size(); ++l) {
    if (l != self && std::max(of_lane[l].write, of_lane[l].read) > clock[l]) {
      return static_cast<int>(l);
    }
  }
  return -1;
}

void AccessOrder::finish_shared(const StepEvent& event, std::int32_t depth) {
  auto& clock = clocks_[static_cast<std::size_t>(event.global_lane)];
  if (event.last && !snapshots_.empty()) {
    const auto found = snapshots_.find({event.global_lane, event.step});
    if (found != snapshots_.end()) {
      found->second[static_cast<std::size_t>(event.window)] = {clock, depth};
    }
  }
  ++clock[static_cast<std::size_t>(event.lane)];
}

std::int32_t AccessOrder::take(const StepEvent& event) {
  const int first_lane = ranks_[static_cast<std::size_t>(event.rank)].first_lane;
  const auto& seen = snapshots_.at({first_lane + event.what->tx, event.what->rx});
  const Snapshot& snapshot = seen[static_cast<std::size_t>(event.window)];
  auto& clock = clocks_[static_cast<std::size_t>(event.global_lane)];
  for (std::size_t l = 0; l < clock.size(); ++l) {
    clock[l] = std::max(clock[l], snapshot.clock[l]);
  }
  return snapshot.depth;
}

} // namespace whorl
