#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "schedule/machine.h"

namespace whorl {

/// Finds chunks that two lanes of a rank touch, at least one of them writing, without a kWait
/// between them. Every lane has a vector clock over the lanes of its rank; a wait takes over the
/// clock that the other lane had after the step waited for. So the order in which a Machine happens
/// to run the lanes makes no difference.
class AccessOrder {
 public:
  AccessOrder(std::span<const Schedule> schedules, const ChunkLayout& layout, int windows);

  /// Notes an access of the lane of `event`. Returns the lane that it conflicts with, or -1.
  int read(const StepEvent& event, std::uint32_t cell) {
    const Rank& rank = ranks_[static_cast<std::size_t>(event.rank)];
    return rank.lanes < 2 ? -1 : read_shared(rank, event, cell);
  }
  int write(const StepEvent& event, std::uint32_t cell) {
    const Rank& rank = ranks_[static_cast<std::size_t>(event.rank)];
    return rank.lanes < 2 ? -1 : write_shared(rank, event, cell);
  }
  /// The repetition of `event` is over; `depth` is what take() is to give to lanes that wait.
  void finish(const StepEvent& event, std::int32_t depth) {
    if (ranks_[static_cast<std::size_t>(event.rank)].lanes >= 2) finish_shared(event, depth);
  }
  /// The lane of `event` has waited. Returns the depth given to finish().
  std::int32_t take(const StepEvent& event);

 private:
  struct Rank {
    int lanes;
    int first_lane;           ///< global number of lane 0
    std::uint32_t first_cell; ///< of the rank
    std::size_t accesses;     ///< index of the first of the rank's entries below
  };
  /// The last accesses of one lane to one cell, in the lane's own time; 0 is never.
  struct Access {
    std::uint32_t read = 0, write = 0;
  };
  struct Snapshot {
    std::vector<std::uint32_t> clock;
    std::int32_t depth = 0;
  };

  int read_shared(const Rank& rank, const StepEvent& event, std::uint32_t cell);
  int write_shared(const Rank& rank, const StepEvent& event, std::uint32_t cell);
  void finish_shared(const StepEvent& event, std::int32_t depth);
  Access* accesses(const Rank& rank, std::uint32_t cell) {
    return accesses_.data() + rank.accesses +
           static_cast<std::size_t>(cell - rank.first_cell) * static_cast<std::size_t>(rank.lanes);
  }

  std::vector<Rank> ranks_;
  std::vector<Access> accesses_; ///< of each cell of ranks with several lanes, for each lane
  std::vector<std::vector<std::uint32_t>> clocks_; ///< of each global lane, over its rank's lanes
  /// Of each step that is waited for (global lane, step), by window.
  std::map<std::pair<int, int>, std::vector<Snapshot>> snapshots_;
};

} // namespace whorl
