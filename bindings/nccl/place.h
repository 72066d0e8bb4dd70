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

/// What is needed before an operation on host memory may begin: that the buffers are the host's and
/// that what was queued on `stream` before is done. ncclSuccess, or an error that has been
/// reported.
ncclResult_t prepare(const char* function, const void* sendbuff, const void* recvbuff,
                     cudaStream_t stream) noexcept;

} // namespace whorl_nccl
