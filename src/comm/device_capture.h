#pragma once

#include <cuda.h>

#include "base/status.h"

namespace whorl {

/// Whether a stream is being captured into a graph.
Result<bool> is_captured(CUstream stream);
/// kInvalidUsage if it is: for an operation that a graph cannot repeat. Nothing has happened then.
Status refuse_capture(CUstream stream);

} // namespace whorl
