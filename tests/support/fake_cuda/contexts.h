#pragma once

// Each device has its primary context and no other. It is reset when its last reference goes, or by
// cuDevicePrimaryCtxReset(): streams, kernels and memory of before are gone, and the next life has
// the same CUcontext, but another id.

#include <cuda.h>

namespace fake_cuda {

int devices();
bool is_initialised();
CUcontext context_of(int device);
CUcontext current_context(); ///< null: there is none
int device_of(CUcontext context);
int current_device(); ///< 0 if no context is current
/// Whether kernels of a device may touch the memory of another one: since enable_access().
bool reaches(int device, int other);
/// False if they could not before.
bool enable_access(int device, int other);
/// Of the context's present life; 0 if it has none.
unsigned long long id_of(CUcontext context);

/// A kernel has been found in a module of the current context.
void add_function(CUfunction function);
/// Whether that was in the present life of the current context.
bool has_function(CUfunction function);
/// It is loaded when something is asked of it, or at its first launch. False: it was already.
bool load_function(CUfunction function);

} // namespace fake_cuda
