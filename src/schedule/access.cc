#include "schedule/access.h"

#include <algorithm>

namespace whorl {
namespace {

void join(std::vector<std::uint32_t>& clock, const std::vector<std::uint32_t>& other) {
  for (std::size_t l = 0; l < clock.size(); ++l) clock[l] = std::max(clock[l], other[l]);
}

} // namespace

AccessOrder::AccessOrder(std::span<const Schedule> schedules, const ChunkLayout& layout,
                         int windows, Domain domain)
    : domain_(domain), last_(layout.cells(), -1) {
  std::size_t all_lanes = 0;
  for (const Schedule& schedule : schedules) all_lanes += schedule.lanes.size();
  for (const Schedule& schedule : schedules) {
    const int first_lane = static_cast<int>(lanes_.size());
    for (std::size_t l = 0; l < schedule.lanes.size(); ++l) {
      const bool all = domain == Domain::kAllRanks;
      LaneState lane{all ? 0 : first_lane, Clock(all ? all_lanes : schedule.lanes.size(), 0)};
      // A lane's own time starts at 1.
      lane.clock[lanes_.size() - static_cast<std::size_t>(lane.first)] = 1;
      lanes_.push_back(std::move(lane));
      for (const Step& step : schedule.lanes[l].steps) {
        if (!step.waits()) continue;
        snapshots_[{first_lane + step.tx, step.rx}].resize(static_cast<std::size_t>(windows));
      }
    }
  }
}

/// Returns the entry of a lane for a cell, made if there is none. Few lanes access the same cell.
AccessOrder::Access& AccessOrder::access(std::uint32_t cell, int lane) {
  for (std::int32_t i = last_[cell]; i >= 0; i = accesses_[static_cast<std::size_t>(i)].next) {
    if (accesses_[static_cast<std::size_t>(i)].lane == lane) {
      return accesses_[static_cast<std::size_t>(i)];
    }
  }
  accesses_.push_back({lane, last_[cell]});
  last_[cell] = static_cast<std::int32_t>(accesses_.size() - 1);
  return accesses_.back();
}

int AccessOrder::note(const StepEvent& event, std::uint32_t cell, Kind kind) {
  const LaneState& self = lanes_[static_cast<std::size_t>(event.global_lane)];
  const auto time_of = [&](int lane) {
    return self.clock[static_cast<std::size_t>(lane - self.first)];
  };
  const std::uint32_t now = time_of(event.global_lane);
  Access& own = access(cell, event.global_lane);
  (kind == Kind::kRead ? own.read : kind == Kind::kPeek ? own.peek : own.write) = now;
  for (std::int32_t i = last_[cell]; i >= 0;) {
    const Access& other = accesses_[static_cast<std::size_t>(i)];
    i = other.next;
    if (other.lane == event.global_lane) continue;
    std::uint32_t latest = other.write;
    if (kind == Kind::kWrite || kind == Kind::kPlace) latest = std::max(latest, other.read);
    if (kind == Kind::kPlace) latest = std::max(latest, other.peek);
    if (latest > time_of(other.lane)) return other.lane;
  }
  return -1;
}

void AccessOrder::send(const StepEvent& event, std::uint32_t fifo) {
  if (domain_ == Domain::kRank) return;
  if (messages_.size() <= fifo) messages_.resize(fifo + 1);
  messages_[fifo].sent.push_back(lanes_[static_cast<std::size_t>(event.global_lane)].clock);
}

void AccessOrder::receive(const StepEvent& event, std::uint32_t fifo) {
  if (domain_ == Domain::kRank) return;
  Clocks& from = messages_[fifo];
  join(lanes_[static_cast<std::size_t>(event.global_lane)].clock, from.sent[from.received++]);
  if (from.received == from.sent.size()) from = {};
}

void AccessOrder::finish_shared(const StepEvent& event, std::int32_t depth) {
  LaneState& lane = lanes_[static_cast<std::size_t>(event.global_lane)];
  if (event.last && !snapshots_.empty()) {
    const auto found = snapshots_.find({event.global_lane, event.step});
    if (found != snapshots_.end()) {
      found->second[static_cast<std::size_t>(event.window)] = {lane.clock, depth};
    }
  }
  ++lane.clock[static_cast<std::size_t>(event.global_lane - lane.first)];
}

std::int32_t AccessOrder::take(const StepEvent& event) {
  const int first_lane = event.global_lane - event.lane;
  const auto& seen = snapshots_.at({first_lane + event.what->tx, event.what->rx});
  const Snapshot& snapshot = seen[static_cast<std::size_t>(event.window)];
  join(lanes_[static_cast<std::size_t>(event.global_lane)].clock, snapshot.clock);
  return snapshot.depth;
}

} // namespace whorl
