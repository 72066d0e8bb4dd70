#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "engine/request.h"
#include "engine/stream.h"

namespace whorl {

/// Returns whether pointers may point to device memory: this build supports devices and the machine
/// has a driver. Decided at the first call.
bool devices_possible() noexcept;
/// Returns a sentence that says why devices_possible() is false.
std::string why_no_devices();

/// Returns a buffer of a rank's request, or the factor of its premultiplied sum, that is in memory
/// which the host cannot reach; null if the request has none.
const void* device_buffer(const Request& request, int rank, int nranks) noexcept;

/// Returns whether `handle` is a default stream while the calling thread has no current context.
bool lacks_context(void* handle) noexcept;

/// Returns the Stream of a `cudaStream_t` or `CUstream`. Null is the default stream of the current
/// context or, where the thread has none, of the context of `buffer`. Returns an error if the
/// program has not initialised a device or the driver does not know the stream.
///
/// The host carries out an operation in such a stream, between what was queued before and after it:
///
///     queued before ─▶ copy inputs to the host ─▶ "ready" = n ─▶ wait for "done" ≥ n
///                                                    │               ▲        ─▶ copy results back
///                      a thread of the host:         └─▶ operation ──┘
///
/// All of this is queued when the operation is issued, so the caller waits for nothing, and the
/// thread of the host makes no call of the driver. "ready" and "done" are words in host memory,
/// which the stream itself writes and waits for. A large request that is alone in its call is
/// copied segment by segment instead, while the operation runs, see DeviceStagingPipeline.
Result<std::shared_ptr<Stream>> device_stream(void* handle, const void* buffer = nullptr);

/// Returns kCudaError, with the driver's text, if the device that the calling thread uses is lost,
/// for instance because a kernel of the program has accessed invalid memory. Then no stream of this
/// process makes progress there. Does not wait.
Status device_fault();

} // namespace whorl
