#pragma once

#include <cuda.h>

#include <cstdint>

#include "base/status.h"

namespace whorl {

/// A capture of streams into a graph.
struct Capture {
  std::uint64_t id = 0;    ///< a number that no other capture has; 0: none
  CUgraph graph = nullptr; ///< as it is yet
};
/// That which a stream of `context` belongs to. kCudaError if nothing can be queued in the stream
/// because of a capture: its own has been spoilt, or it is the default stream, which another one
/// synchronises with that is captured.
Result<Capture> capture_of(CUstream stream, CUcontext context);

/// kInvalidUsage if a stream of `context` is being captured into a graph: for an operation that a
/// graph cannot repeat. Nothing has happened then.
Status refuse_capture(CUstream stream, CUcontext context);

} // namespace whorl
