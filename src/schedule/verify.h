#pragma once

#include <span>

#include "base/status.h"
#include "base/types.h"
#include "schedule/schedule.h"

namespace whorl {

/// What a set of schedules is meant to do.
struct CollectiveSpec {
  Collective collective = Collective::kAllReduce;
  int root = 0;          ///< where the collective has one
  bool in_place = false; ///< input and output overlap in the collective's in-place form
};

struct VerifyOptions {
  int slots = 0;   ///< slots of each FIFO; 0: find the smallest number that suffices
  int windows = 2; ///< windows in a row: catches scratch reuse and messages of the next window
  /// Sources of sends lie in memory that the receiver reads directly, so a message holds what the
  /// source contains when it is received, and a step that overwrites such a source waits for the
  /// release. Checks that this deadlocks nowhere and changes no result.
  bool published = false;
  /// A sender may write a message that its receiver only copies to its output straight there, at
  /// any time from its own step on, for the receiver has said in advance, in this window or before,
  /// where that is. Checks that nothing else touches this memory meanwhile, on any rank, whatever
  /// is placed and whatever is not. With `published` also that nobody reads there what was
  /// published. Messages count as an order of the lanes of a rank, too, which an executor that
  /// sends ahead of a window does not keep: scratch that lanes share is checked without `placed`.
  bool placed = false;
};

struct VerifyReport {
  int min_slots = 1;       ///< smallest number of slots without deadlock
  int messages = 0;        ///< of all ranks, in one window
  int max_sent_chunks = 0; ///< chunks sent by the busiest rank in one window
  int rounds = 0;          ///< messages on the longest chain of dependent messages in one window
};

/// Proves that the schedules of all ranks (schedules[r].rank == r) together do what `spec` says:
/// every output chunk gets exactly the right contributions, each exactly once; nothing unwritten is
/// read; every message is received, by a step that expects this chunk; no lane waits for ever;
/// lanes of a rank do not touch the same chunk without an order between them; kFinal stands where
/// the last contribution arrives and only there. The error names rank, lane, step and chunk.
///
/// One execution proves all: lanes are sequential, reads and writes of bounded FIFOs block, so by
/// Kahn's theorem neither the result nor deadlock depends on the interleaving.
Result<VerifyReport> verify(std::span<const Schedule> schedules, const CollectiveSpec& spec,
                            const VerifyOptions& options = {});

} // namespace whorl
