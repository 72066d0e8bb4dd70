#pragma once

// What the files of the driver share; see device.h.

#include <cuda.h>

#include "tests/support/fake_cuda/device.h"

namespace fake_cuda {

/// FAKE_CUDA_DEVICES, 1 by default. Each has its primary context and no other.
int devices();
bool initialised();
CUcontext context_of(int device);
int device_of(CUcontext context);
/// That of the calling thread; null if none is current.
CUcontext current_context();
/// Its device; 0 if none is current.
int current_device();
/// Whether kernels of a device may touch the memory of another one: since cuCtxEnablePeerAccess().
bool reaches(int device, int other);

} // namespace fake_cuda
