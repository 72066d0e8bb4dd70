#pragma once

#include <cuda.h>

#include "base/status.h"
#include "engine/request.h"

namespace whorl {

/// Returns whether `stream` is a default stream, whose context is the current one.
bool is_default_stream(CUstream stream) noexcept;
/// Returns whether the calling thread has a current context.
bool has_current_context() noexcept;
/// Returns the context in which device memory is used: its own, or, for memory of pools and
/// mappings, the primary context of its device, which is then retained for the life of the process.
Result<CUcontext> context_of_memory(const void* pointer);
/// Whether a kernel in `context` reaches the buffers that `rank` has in a request.
bool reaches(CUcontext context, const Request& request, int rank, int nranks);

} // namespace whorl
