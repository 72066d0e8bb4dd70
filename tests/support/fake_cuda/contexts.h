#pragma once

// Primary contexts: each device has one and no other. The last release of a reference, or
// cuDevicePrimaryCtxReset(), resets it: its streams, kernels and memory vanish, and the next use
// has the same CUcontext, but another id.

#include <cuda.h>

namespace fake_cuda {

inline constexpr int kMaxDevices = 16;
int devices();
bool is_initialised();
CUcontext context_of(int device);
CUcontext current_context(); ///< returns nullptr if no context is current
int device_of(CUcontext context);
int current_device(); ///< returns 0 if no context is current
/// Returns whether kernels of a device may access the memory of another one, as enable_access()
/// allows.
bool reaches(int device, int other);
/// Allows the access and returns whether it was allowed before.
bool enable_access(int device, int other);
/// Returns the id of the context's present use; 0 if the context is not in use.
unsigned long long id_of(CUcontext context);

/// Counts a call that frees or uses what was made in a context before its last reset, for
/// fake_cuda_stale_calls().
void count_stale_call();

/// Records that the kernel was found in a module of the current context.
void add_function(CUfunction function);
/// Returns whether add_function() was called since the current context's last reset.
bool has_function(CUfunction function);
/// Loads a kernel, at the first query or launch. Returns false if it was loaded already.
bool load_function(CUfunction function);

} // namespace fake_cuda
