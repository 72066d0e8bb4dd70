#pragma once

// fake_cuda_fault(stream) queues a kernel that accesses memory which it must not. When it runs, all
// that is queued in any stream of the process is forgotten, and the driver refuses everything with
// kFault, as the real one does.

#include <cuda.h>

namespace fake_cuda {

inline constexpr CUresult kFault = CUDA_ERROR_ILLEGAL_ADDRESS;
bool lost();
void lose();
/// The calling thread may not call the driver from now on: that is an abort.
void forbid_calls();
/// What calls on a stream say that cannot be made: the device is lost, a default stream without a
/// current context, a stream whose context has been reset.
CUresult refused(CUstream stream);

/// fake_cuda_refuse_ipc(n) lets the next n IPC handles not be opened.
bool ipc_is_refused();
/// fake_cuda_launches() tells how many kernels have been queued.
void count_launch();

/// fake_cuda_refuse_modules(n) lets the next n modules not be loaded: they are for other devices.
bool modules_are_refused();

/// fake_cuda_calls_that_may_wait() tells how many calls there have been that the real driver may
/// let wait for streams: those below, and those that allocate, register or map memory.
void count_call_that_may_wait();

/// Calls that the real driver may let wait for all streams of the context (to free memory, to end a
/// registration or a mapping, to load kernels) do so here, unless FAKE_CUDA_IMPLICIT is 0.
void synchronize_implicitly();

/// Whether the calling thread may not make a call that could be meant to be part of a graph,
/// because some thread captures one in global mode; that capture is spoilt then.
bool unsafe_call_is_refused();
void begin_capture(CUstreamCaptureMode mode);
/// Whether the graph is good.
bool end_capture(CUstreamCaptureMode mode);

} // namespace fake_cuda
