#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_pattern.h"
#include "base/status.h"
#include "base/ticks.h"

namespace whorl {

/// One slice of a timeline. Times are in ticks().
struct TraceRecord {
  enum class Kind : std::uint8_t { kOperation, kStep };
  static constexpr std::uint16_t kNoRank = 0xffff;

  std::uint64_t begin = 0, end = 0;
  /// The part of a step in which the step waited, from the first attempt in vain to the successful
  /// one; 0: no wait.
  std::uint64_t wait_begin = 0, wait_end = 0;
  std::uint64_t bytes = 0;
  std::uint32_t sequence = 0; ///< number of the operation
  std::uint32_t window = 0;
  std::uint32_t track = 0; ///< track in the file, see Trace
  std::uint16_t step = 0, repetition = 0;
  std::uint16_t from = kNoRank, to = kNoRank; ///< ranks; the first rank of a fan
  std::uint8_t fan = 1;
  std::uint8_t ops = 0;       ///< bits of the step
  std::uint8_t algorithm = 0; ///< index of the operation's name in `operations` of Trace::write()
  Kind kind = Kind::kStep;
};
static_assert(sizeof(TraceRecord) == 64);

/// State of a lane between two records. Costs two readings of the counter for each step that does
/// not wait, and one more for each attempt in vain.
struct LaneTrace {
  std::uint64_t began = 0;      ///< earliest possible start of the step in progress
  std::uint64_t idle_since = 0; ///< time of the first attempt in vain; 0: none
  std::uint64_t idle_until = 0;
  void start() noexcept { *this = {.began = ticks()}; }
  void resume() noexcept {
    if (idle_since != 0) idle_until = ticks();
  }
  void pause() noexcept {
    if (idle_since == 0) idle_since = ticks();
  }
};

/// The last operations and steps of one rank, for a file in the format of Chrome's trace viewer and
/// Perfetto. Used by the thread that drives the engine. Nothing is allocated after open(); when the
/// memory is full, new records overwrite the oldest.
///
/// In the file a process is a rank and a thread is a track: 0 … 998 are the channels of
/// collectives, each with its first lane, kOperations the operations, kTransfers + 2·peer (+ 1) the
/// transfers from (to) a peer, and from kFurtherLanes on the other lanes of channels that have
/// several. Times are those of CLOCK_MONOTONIC, so that the files of one host fit together.
class Trace {
 public:
  static constexpr std::uint32_t kOperations = 999;
  static constexpr std::uint32_t kTransfers = 1000;
  static constexpr std::uint32_t kFurtherLanes = 1U << 18; ///< number greater than all transfers'
  /// Returns the track of lane number `lane` (from 0) of its channel.
  static constexpr std::uint32_t lanes(std::uint16_t channel, std::uint32_t lane) {
    return lane == 0 ? channel : lane * kFurtherLanes + channel;
  }
  /// Returns the track of the transfers from a peer, or to a peer.
  static constexpr std::uint32_t transfers(int peer, bool sends) {
    return kTransfers + 2 * static_cast<std::uint32_t>(peer) + (sends ? 1 : 0);
  }

  struct Who {
    int nranks = 1;
    std::string process; ///< "host node7, pid 42"
    FilePatternFacts facts;
  };
  /// Makes a trace, and opens its file now, so that a wrong path is an error; its name is that of
  /// expand_file_pattern().
  static Result<std::unique_ptr<Trace>> open(const std::string& pattern, std::size_t records,
                                             Who who);

  void add(const TraceRecord& record) noexcept {
    records_[static_cast<std::size_t>(added_++ % records_.size())] = record;
  }
  /// Writes the file, or a warning where that fails. `operations[i]` is the name of
  /// TraceRecord::algorithm i.
  void write(std::span<const std::string> operations);

 private:
  Trace(std::string path, std::ofstream file, std::size_t records, Who who);

  std::string path_;
  std::ofstream file_;
  Who who_;
  std::uint64_t ticks_, ns_; ///< the same time in ticks() and in ns
  std::uint64_t added_ = 0;
  std::vector<TraceRecord> records_;
};

} // namespace whorl
