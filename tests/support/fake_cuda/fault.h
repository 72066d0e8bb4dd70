#pragma once

// Errors that tests cause. fake_cuda_fault(stream) queues a kernel that accesses invalid memory.
// When it runs, all queued operations of the process's streams are dropped, and the driver answers
// every call with kFault, as the real one does.

#include <cuda.h>

namespace fake_cuda {

class Stream;

inline constexpr CUresult kFault = CUDA_ERROR_ILLEGAL_ADDRESS;
bool lost();
void lose();
/// Forbids the calling thread any further call of the driver: a call aborts the process.
void forbid_calls();
/// Returns the error of a call on a stream that cannot be made: the device is lost, a default
/// stream has no current context, or the stream's context has been reset.
CUresult refused(CUstream stream);

/// Returns whether an IPC handle must not be opened: fake_cuda_refuse_ipc(n) refuses the next n.
bool ipc_is_refused();
/// Counts a queued kernel for fake_cuda_launches().
void count_launch();

/// Returns whether a module must not be loaded, as if it was made for other devices:
/// fake_cuda_refuse_modules(n) refuses the next n.
bool modules_are_refused();

/// Counts a call for fake_cuda_calls_that_may_wait(). The real driver may make such calls wait for
/// streams: the calls of synchronize_implicitly(), and those that allocate, register or map memory.
void count_call_that_may_wait();

/// Waits for all streams of the context, as the real driver may do in some calls (freeing memory,
/// ending a registration or a mapping, loading kernels), unless FAKE_CUDA_IMPLICIT is 0.
void synchronize_implicitly();
/// Waits for a stream likewise, as a copy to or from pageable memory does.
void synchronize_implicitly(Stream& stream);

/// Returns whether the calling thread may not make a call that could belong to a graph, because
/// some thread captures in global mode; marks all such captures as invalid if so.
bool unsafe_call_is_refused();

} // namespace fake_cuda
