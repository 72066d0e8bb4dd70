#pragma once

#include "bindings/nccl/abi.h"

// Where buffers are. This is the only place that decides between host and device memory; a path for
// device memory begins here. CUDA is not needed to build it: the driver is asked if the program has
// loaded it.
namespace whorl_nccl {

enum class Place { kHost, kDevice };

/// Looks for the CUDA driver in this process. Called when a communicator is made: a program that
/// has device memory or streams has loaded the driver by then. Any thread.
void find_driver() noexcept;

/// Where `pointer` points to. Pinned and managed memory counts as the host's. NULL is host.
Place place_of(const void* pointer) noexcept;

/// ncclInvalidArgument, reported, where whorl cannot use memory of a device; `argument` names it.
ncclResult_t check_device(const char* function, const char* argument) noexcept;

/// Whether the calling thread has a device, and whorl can use it. Looks for the driver.
bool has_context() noexcept;

/// What is needed before an operation may begin. One with a buffer on a device, or of no elements
/// in a thread that has a device, is to be issued on `*queue`. For one on host memory that is null,
/// and what was queued on `stream` before is done. ncclSuccess, or an error that has been reported.
ncclResult_t prepare(const char* function, const void* sendbuff, const void* recvbuff, size_t count,
                     cudaStream_t stream, void** queue) noexcept;

} // namespace whorl_nccl
