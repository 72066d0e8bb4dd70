#pragma once

#include "bindings/nccl/abi.h"

// Location of buffers. No other file decides between host and device memory. The build does not
// need CUDA: the driver is used from when the program has loaded it, before or after it makes a
// communicator.
namespace whorl_nccl {

enum class Place { kHost, kDevice };

/// Returns where `pointer` points to. Pinned and managed memory counts as the host's. NULL is host.
Place place_of(const void* pointer) noexcept;

/// Returns ncclInvalidArgument, reported, where whorl cannot use device memory; `argument` names
/// the buffer.
ncclResult_t check_device(const char* function, const char* argument) noexcept;

/// Returns whether the calling thread has a device that whorl can use.
bool has_context() noexcept;

/// Returns what whorl takes for a stream: in whorl null means a blocking call, in NCCL the default
/// stream.
inline void* inner(cudaStream_t stream) noexcept {
  void* const legacy = reinterpret_cast<void*>(1); // a constant of the CUDA driver's interface
  return stream != nullptr ? static_cast<void*>(stream) : legacy;
}

/// Prepares an operation. With a buffer in device memory, or without elements in a thread that has
/// a device, `*queue` becomes the stream to issue it on. For host memory `*queue` becomes null, and
/// the function waits for the work queued on `stream`. Returns ncclSuccess, or an error that has
/// been reported.
ncclResult_t prepare(const char* function, const void* sendbuff, const void* recvbuff, size_t count,
                     cudaStream_t stream, void** queue) noexcept;

} // namespace whorl_nccl
