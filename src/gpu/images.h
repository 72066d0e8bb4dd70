#pragma once

#include <span>
#include <string>

// Description of the devices and drivers that the kernels in this binary run on, without a call of
// a driver.
namespace whorl::gpu {

/// Contents of the kernels' images: machine code, which drivers of the same major version of CUDA
/// load, and the portable form, which only drivers of the compiler's version or a newer one
/// compile.
struct Images {
  int cuda_version = 0;       ///< version of the compiler, in the form of CUDA_VERSION
  std::span<const int> archs; ///< architectures of the machine code: 90 for sm_90

  /// Returns whether there is machine code for devices of such a compute capability (89 for 8.9):
  /// that of an architecture of the same major number which is not later.
  bool have_code_for(int capability) const noexcept;
};

/// Returns what this binary's images contain.
Images images() noexcept;

/// Says which devices and drivers can load the kernels: "machine code for …", without a full stop.
std::string describe(const Images& images);

/// Says what a device and a driver lack to load the kernels, and what to do, without a full stop.
/// `driver_version`: as CUDA_VERSION; `capability`: 89 for compute capability 8.9.
std::string what_is_missing(const Images& images, int driver_version, int capability);

} // namespace whorl::gpu
