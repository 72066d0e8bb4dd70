#pragma once

#include <cuda.h>

namespace fake_cuda {

/// Says whether a stream is being captured into a graph.
[[gnu::visibility("default")]] void capture(CUstream stream, bool on);

} // namespace fake_cuda
