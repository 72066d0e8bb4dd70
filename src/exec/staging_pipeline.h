#pragma once

#include <cstddef>

#include "base/status.h"
#include "base/wait.h"
#include "exec/chunk_map.h"

namespace whorl {

/// Source of the data of one operation in segments, for data that the host cannot reach, and sink
/// of its results. A segment is some consecutive windows and is executed as an operation is, to its
/// end, before the next one. So the messages of a rank are the same, and in the same order, as
/// without a pipeline: the other ranks need not know. Used by one thread at a time.
class StagingPipeline {
 public:
  struct Segment {
    ChunkMap map;                 ///< map of its windows alone; its blocks are valid until finish()
    std::size_t first_window = 0; ///< first window of the segment, numbered in the operation
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
  };
  virtual ~StagingPipeline() = default;

  /// Begins an operation that is cut by `whole`. An error appears at the first next().
  virtual void begin(const ChunkMap& whole) noexcept = 0;
  /// Gives the next segment: kAdvanced if there is one and its input has arrived, kIdle if the
  /// input is on its way, kDone after the last one, kFailed with error().
  virtual Progress next(Segment& segment) noexcept = 0;
  /// Takes away the results of the current segment.
  virtual void finish() noexcept = 0;
  virtual Status error() const = 0;
};

} // namespace whorl
