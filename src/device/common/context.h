#pragma once

#include <cuda.h>

#include "base/status.h"

namespace whorl {

/// Whether a stream is a default stream: which one it is depends on the current context.
bool is_default_stream(CUstream stream) noexcept;
/// Whether the calling thread has a current context.
bool has_current_context() noexcept;
/// The context in which memory of a device is used: its own, or the primary one of its device, for
/// memory of pools and mappings. That one is retained then, for the life of the process.
Result<CUcontext> context_of_memory(const void* pointer);

} // namespace whorl
