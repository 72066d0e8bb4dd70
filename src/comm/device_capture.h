#pragma once

#include <cuda.h>

#include "base/status.h"

namespace whorl {

/// Whether a stream of `context` is being captured into a graph.
Result<bool> is_captured(CUstream stream, CUcontext context);

/// kInvalidUsage if a stream of `context` is being captured into a graph: for an operation that a
/// graph cannot repeat. Nothing has happened then.
Status refuse_capture(CUstream stream, CUcontext context);

} // namespace whorl
