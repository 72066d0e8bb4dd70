#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>

#include "base/status.h"
#include "device/common/capture_ends.h"

namespace whorl {

/// Order of the launches on one device that use the same FIFOs and scratch memory: each begins when
/// the previous launch has ended, in whichever streams they are. A captured launch takes its place
/// whenever its graph is launched; launches of one capture are in order, see CaptureEnds. Used by
/// one thread at a time.
class LaunchOrder {
 public:
  LaunchOrder() = default;
  ~LaunchOrder();
  LaunchOrder(const LaunchOrder&) = delete;
  LaunchOrder& operator=(const LaunchOrder&) = delete;

  /// Creates the events in the current context, which must be current in all other calls, too. To
  /// be called once.
  Status prepare();
  /// Makes a stream wait for the previous launch. `capture` is the stream's, see capture_of().
  Status enter(CUstream stream, std::uint64_t capture);
  /// Records that the launch has been queued in the stream.
  Status leave(CUstream stream, std::uint64_t capture);
  /// Makes another stream, of the same capture if the last launch has one, wait for that launch.
  Status follow(CUstream stream) const;
  /// Returns whether some launch was captured.
  bool has_graphs() const noexcept { return !records_.empty(); }
  /// Waits for all launches that have been queued in streams, also those of graphs.
  void wait() const noexcept;

 private:
  Status record_in_graph(CUstream stream, std::uint64_t capture);

  CUcontext context_ = nullptr;
  std::uint64_t context_id_ = 0;
  CUevent done_ = nullptr;                       ///< end of the last launch, queued or of a graph
  std::map<std::uint64_t, CUgraphNode> records_; ///< last node that records `done_`, by capture
  CaptureEnds captured_;      ///< ends of captured launches, for others of their captures
  std::uint64_t capture_ = 0; ///< capture of the last launch; 0: none
};

} // namespace whorl
