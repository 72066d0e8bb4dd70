#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "schedule/machine.h"

namespace whorl {

/// Detector of accesses to one chunk, at least one of them a write, with no order between them. If
/// there are none, the order in which a Machine happens to run the lanes makes no difference.
///
/// Every lane has a vector clock over the lanes of its *domain*. Where each rank accesses its own
/// memory only, the domain is the rank, and a kWait takes over the clock that the other lane had
/// after the step waited for. Where ranks read and write each other's memory, the domain is all
/// ranks, and a message carries the clock of its sender.
class AccessOrder {
 public:
  enum class Domain { kRank, kAllRanks };
  AccessOrder(std::span<const Schedule> schedules, const ChunkLayout& layout, int windows,
              Domain domain);

  // The functions that note an access to a cell by the lane of `event` return the lane (numbered
  // across all ranks) that the access conflicts with, or -1.

  /// Notes that the lane reads or writes memory of its own rank. A write waits until peers have
  /// read the publications there, so it does not conflict with peek().
  int read(const StepEvent& event, std::uint32_t cell) {
    return alone(event) ? -1 : note(event, cell, Kind::kRead);
  }
  int write(const StepEvent& event, std::uint32_t cell) {
    return alone(event) ? -1 : note(event, cell, Kind::kWrite);
  }
  /// Notes that the lane reads or writes memory of another rank; Domain::kAllRanks.
  int peek(const StepEvent& event, std::uint32_t cell) { return note(event, cell, Kind::kPeek); }
  int place(const StepEvent& event, std::uint32_t cell) { return note(event, cell, Kind::kPlace); }

  /// Notes that a message of `event` goes into, or comes out of, a FIFO. No effect in
  /// Domain::kRank.
  void send(const StepEvent& event, std::uint32_t fifo);
  void receive(const StepEvent& event, std::uint32_t fifo);

  /// Ends the repetition of `event`; lanes that wait for it get `depth` from take().
  void finish(const StepEvent& event, std::int32_t depth) {
    if (!alone(event)) finish_shared(event, depth);
  }
  /// Ends a wait of the lane of `event`. Returns the depth given to finish().
  std::int32_t take(const StepEvent& event);

 private:
  enum class Kind { kRead, kPeek, kWrite, kPlace };
  using Clock = std::vector<std::uint32_t>;
  struct LaneState {
    int first; ///< first lane of the domain
    Clock clock;
  };
  /// Last accesses of one lane to one cell, in the lane's own time; 0 is never.
  struct Access {
    int lane;
    std::int32_t next; ///< index of the cell's next entry, or -1
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
  std::vector<LaneState> lanes_;   ///< states of the lanes of all ranks
  std::vector<std::int32_t> last_; ///< index in accesses_ of each cell's last entry, or -1
  std::vector<Access> accesses_;
  std::vector<Clocks> messages_; ///< clocks of the messages in each FIFO
  /// Snapshots after each step that is waited for (global lane, step), by window.
  std::map<std::pair<int, int>, std::vector<Snapshot>> snapshots_;
};

} // namespace whorl
