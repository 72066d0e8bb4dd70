#pragma once

#include <span>

#include "base/status.h"
#include "base/types.h"
#include "schedule/schedule.h"

namespace whorl {

/// Purpose of a set of schedules.
struct CollectiveSpec {
  Collective collective = Collective::kAllReduce;
  int root = 0;          ///< root, where the collective has one
  bool in_place = false; ///< whether input and output overlap in the collective's in-place form
};

struct VerifyOptions {
  int slots = 0;   ///< number of slots of each FIFO; 0: unlimited
  int windows = 2; ///< number of windows; 2 catch scratch reuse and messages of the next window
  /// Whether the receiver reads the source of a send directly. A message then holds what the source
  /// contains when it is received, and a step that overwrites such a source waits for the release.
  /// Checks that this deadlocks nowhere and changes no result.
  bool published = false;
  /// Whether a sender may write a message that its receiver only copies to its output directly
  /// there, at any time from its own step on, because the receiver has exposed that memory in
  /// advance, in this window or before. Checks that no other step accesses this memory meanwhile,
  /// on any rank, whichever messages are written directly; with `published` also that no peer reads
  /// a publication there. Messages, too, order the lanes of a rank here, but not in an executor
  /// that sends ahead of a window: scratch that lanes share is checked without `placed`.
  bool placed = false;
};

struct VerifyReport {
  int min_slots = 1;       ///< smallest number of slots without deadlock
  int messages = 0;        ///< number of messages of all ranks, in one window
  int max_sent_chunks = 0; ///< number of chunks sent by the busiest rank in one window
  int rounds = 0; ///< number of messages on the longest chain of dependent messages in one window
};

/// Proves that the schedules of all ranks (schedules[r].rank == r) together do what `spec` says:
/// every output chunk gets exactly the right contributions, each exactly once; nothing unwritten is
/// read; every message is received, by a step that expects this chunk; no lane waits for ever;
/// lanes of a rank do not access the same chunk without an order between them; kFinal is on the
/// steps where the last contribution arrives and only there. The error names rank, lane, step and
/// chunk.
///
/// One execution proves all: lanes are sequential, reads and writes of bounded FIFOs block, so by
/// Kahn's theorem neither the result nor deadlock depends on the interleaving.
Result<VerifyReport> verify(std::span<const Schedule> schedules, const CollectiveSpec& spec,
                            const VerifyOptions& options = {});

} // namespace whorl
