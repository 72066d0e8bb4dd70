#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "algorithms/groups.h"
#include "algorithms/shape.h"
#include "base/types.h"
#include "schedule/schedule.h"

namespace whorl {

/// Part of a schedule's costs that falls to one level of links.
struct LevelPart {
  double rounds = 0, volume = 0, messages = 0;
};

/// Costs of a schedule, as factors for the cost model. The vector is the larger side of the
/// operation, n bytes. "Busiest" is the rank with the largest number.
struct Cost {
  double rounds = 0;   ///< messages on the critical path of one window, pipelined ones once
  double volume = 0;   ///< bytes that the busiest rank sends or that it receives, divided by n
  double sent = 0;     ///< bytes that the rank with most traffic sends, divided by n
  double received = 0; ///< bytes that this rank receives, divided by n
  double mean = 0;     ///< bytes that a rank sends on average, divided by n
  double fifos = 0;    ///< number of peers that a rank sends to on average, on any channel
  double reduced = 0;  ///< bytes that the busiest rank reduces, divided by n
  double merged =
      0; ///< bytes that the busiest rank receives but only reads, in a fan, divided by n
  double copied = 0;   ///< bytes that the busiest rank also copies within its memory, divided by n
  double messages = 0; ///< messages that the busiest rank sends or that it receives in a window
  double window = 1;   ///< bytes of vector that one window covers, in full messages
  double fill = 0; ///< bytes that fill and drain a pipeline of chunks, divided by those of a window
  /// Parts of rounds, volume and messages within the groups of each division of the shape (see
  /// divisions()), innermost first, without those within smaller groups. The rest is between the
  /// groups of the outermost level, or everywhere.
  std::array<LevelPart, kMaxLevels - 1> inner{};
  /// Fraction of the ranks that take part in rounds between groups; the others leave them their
  /// processors.
  double outer_ranks = 1;
  bool streams = false; ///< whether the next window starts without waiting for the end of this one
};

/// Returns the costs of a reduction whose messages are those of a broadcast, in the other
/// direction.
constexpr Cost reduction_of(Cost broadcast) noexcept {
  std::swap(broadcast.sent, broadcast.received);
  broadcast.reduced = broadcast.volume;
  broadcast.merged = std::max(0.0, broadcast.volume - 1); // all messages of a fan but one
  return broadcast;
}

/// Number of slots with which no schedule of the registry can deadlock in any number of windows.
/// The tests prove it.
inline constexpr int kMinSlots = 2;

/// One algorithm for one collective. All functions are pure. All speak of places, also in
/// `root` of their shapes; costs know whether there is an order. build_schedule() builds for a
/// rank.
struct Algorithm {
  std::string_view name; ///< name as in WHORL_ALGO: "ring", "tree", …
  Collective collective;
  bool (*supports)(const Shape& shape);
  /// Schedules and costs of two ranks or more; build_place() and cost() also take a single one.
  Schedule (*build_several)(const Shape& shape, int place);
  Cost (*cost_of_several)(const Shape& shape);
  /// Whether every reducing step combines the inputs of all ranks, so that there are no partial
  /// results.
  bool at_once = false;
  /// Whether a rank that has an output gets a message straight from each other rank, and each rank
  /// sends the first of these to all before it writes its own output.
  bool tells_all = false;

  /// Builds the schedule of a place, also of the only one.
  Schedule build_place(const Shape& shape, int place) const;
  /// Returns the cost, which is nothing for a single rank.
  Cost cost(const Shape& shape) const {
    return shape.nranks == 1 ? Cost{} : cost_of_several(shape);
  }
};

/// Returns every algorithm, grouped by collective; of two with the same cost the first wins.
std::span<const Algorithm> all_algorithms();
/// Returns the algorithm of that name, or nullptr if there is none.
const Algorithm* find_algorithm(Collective collective, std::string_view name);
/// Builds the schedule of one rank, in the order of ranks of `shape`.
Schedule build_schedule(const Algorithm& algorithm, const Shape& shape, int rank);
/// Builds the schedules of all ranks.
std::vector<Schedule> build_all(const Algorithm& algorithm, const Shape& shape);

} // namespace whorl
