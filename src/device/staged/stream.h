#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "engine/request.h"
#include "engine/stream.h"

namespace whorl {

/// Whether a pointer may be one of device memory: this build has support for it and the machine a
/// driver. Decided at the first call.
bool devices_possible() noexcept;
/// A sentence, if not.
std::string why_no_devices();

/// Makes what takes long, or may wait for all streams of a context, while nobody waits for a call:
/// kernels, and memory for the copies of so many ranks. Nothing where the calling thread has no
/// current context. To be called when a communicator is made.
void prepare_device(int ranks);

/// A buffer of a request, of a rank, that is in memory which the host cannot reach; null if there
/// is none.
const void* device_buffer(const Request& request, int rank, int nranks) noexcept;

/// Whether a stream is the default one of a device, and the calling thread has none to which that
/// would belong.
bool lacks_context(void* handle) noexcept;

/// The stream of operations that a `cudaStream_t` or `CUstream` is; null is the default stream of
/// the current context, or, where the thread has none, of that of `buffer`. An error if the program
/// has not initialised a device or the driver does not know the stream.
///
/// An operation there is done by the host, between what was queued before and after it:
///
///     queued before ─▶ copy inputs to the host ─▶ "ready" = n ─▶ wait for "done" ≥ n
///                                                    │               ▲        ─▶ copy results back
///                      a thread of the host:         └─▶ operation ──┘
///
/// All of that is queued when the operation is issued, so the caller waits for nothing. "ready" and
/// "done" are words in host memory, which the stream writes and waits for by itself. Large requests
/// are copied piece by piece instead, while the operation goes on, see DeviceFeed; then "done" is
/// written when the last piece has been copied back.
Result<std::shared_ptr<Stream>> device_stream(void* handle, const void* buffer = nullptr);

/// kCudaError, with the driver's words, if the device that the calling thread uses is lost: a
/// kernel of the program, for instance, has accessed memory that it must not. No stream of this
/// process goes on there. Does not wait.
Status device_fault();

} // namespace whorl
