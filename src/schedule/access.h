#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "schedule/machine.h"

namespace whorl {

/// Finds accesses to one chunk, at least one of them a write, that nothing orders. So the order in
/// which a Machine happens to run the lanes makes no difference.
///
/// Every lane has a vector clock over the lanes of its *domain*. Where each rank touches its own
/// memory only, the domain is the rank, and a kWait takes over the clock that the other lane had
/// after the step waited for. Where ranks read and write each other's memory, the domain is all
/// ranks, and a message carries the clock of its sender.
class AccessOrder {
 public:
  enum class Domain { kRank, kAllRanks };
  AccessOrder(std::span<const Schedule> schedules, const ChunkLayout& layout, int windows,
              Domain domain);

  // Each notes an access to a cell by the lane of `event`, and returns the lane (numbered through
  // all ranks) that it conflicts with, or -1.

  /// Reads or writes memory of its own rank. A write waits until peers have read what was published
  /// there, so it is in no conflict with peek().
  int read(const StepEvent& event, std::uint32_t cell) {
    return alone(event) ? -1 : note(event, cell, Kind::kRead);
  }
  int write(const StepEvent& event, std::uint32_t cell) {
    return alone(event) ? -1 : note(event, cell, Kind::kWrite);
  }
  /// Reads or writes memory of another rank; Domain::kAllRanks.
  int peek(const StepEvent& event, std::uint32_t cell) { return note(event, cell, Kind::kPeek); }
  int place(const StepEvent& event, std::uint32_t cell) { return note(event, cell, Kind::kPlace); }

  /// A message of `event` goes into, or comes out of, a FIFO. Nothing in Domain::kRank.
  void send(const StepEvent& event, std::uint32_t fifo);
  void receive(const StepEvent& event, std::uint32_t fifo);

  /// The repetition of `event` is over; `depth` is what take() is to give to lanes that wait.
  void finish(const StepEvent& event, std::int32_t depth) {
    if (!alone(event)) finish_shared(event, depth);
  }
  /// The lane of `event` has waited. Returns the depth given to finish().
  std::int32_t take(const StepEvent& event);

 private:
  enum class Kind { kRead, kPeek, kWrite, kPlace };
  using Clock = std::vector<std::uint32_t>;
  struct LaneState {
    int first; ///< lane of the domain
    Clock clock;
  };
  /// The last accesses of one lane to one cell, in the lane's own time; 0 is never.
  struct Access {
    int lane;
    std::int32_t next; ///< of the same cell, or -1
    std::uint32_t read = 0, peek = 0, write = 0;
  };
  struct Snapshot {
    Clock clock;
    std::int32_t depth = 0;
  };
  struct Clocks {
    std::vector<Clock> sent;
    std::size_t received = 0;
  };

  bool alone(const StepEvent& event) const {
    return lanes_[static_cast<std::size_t>(event.global_lane)].clock.size() < 2;
  }
  int note(const StepEvent& event, std::uint32_t cell, Kind kind);
  Access& access(std::uint32_t cell, int lane);
  void finish_shared(const StepEvent& event, std::int32_t depth);

  Domain domain_;
  std::vector<LaneState> lanes_;   ///< of all ranks
  std::vector<std::int32_t> last_; ///< of each cell: in accesses_, or -1
  std::vector<Access> accesses_;
  std::vector<Clocks> messages_; ///< of each FIFO
  /// Of each step that is waited for (global lane, step), by window.
  std::map<std::pair<int, int>, std::vector<Snapshot>> snapshots_;
};

} // namespace whorl
