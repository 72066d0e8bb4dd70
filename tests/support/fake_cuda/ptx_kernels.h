#pragma once

// Kernels as the PTX of the library's images (tests/support/ptx) instead of the host's text of
// them, with FAKE_CUDA_PTX in the environment. A kernel that is not in its image, accesses memory
// that its device cannot access or has an instruction that is not known ends the process.

#include <cuda.h>

#include <cstddef>

namespace fake_cuda {

/// Size of a grid.
struct PtxGrid {
  unsigned x, y, threads;
};

/// Remembers in which image the kernel of a function is. Returns false if the image lacks it.
bool add_ptx_kernel(CUfunction function, const void* image, const char* name);
/// Runs a kernel on a device, and waits for its end. Returns false if it is not to be run as PTX.
bool run_as_ptx(CUfunction function, const PtxGrid& grid, const void* parameter,
                std::size_t parameter_bytes, int device);

} // namespace fake_cuda
