#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/nvml.h"

namespace whorl::gpu {

/// What a machine has of GPUs and of their driver, as far as it can be seen without initialising
/// CUDA.
struct DriverSetup {
  int gpus = 0;              ///< NVIDIA's on the PCI bus
  std::string kernel_module; ///< version of the one that is loaded; empty: none
  bool nodes = false;        ///< whether /dev/nvidiactl exists
  std::string closed_node;   ///< a /dev/nvidia* that this process may not open; empty: none
  std::string cuda_error;    ///< why libcuda.so.1 cannot be loaded; empty: it can
  int cuda_version = 0;      ///< of libcuda.so.1, as CUDA_VERSION counts; 0: unknown
  bool cuda_works = false;   ///< this process has initialised CUDA and has a device
  Nvml::State nvml = Nvml::State::kNoLibrary;
  nvmlReturn_t nvml_code = NVML_SUCCESS;
  std::string nvml_error;
};

/// Looks at /proc, /sys and /dev below `root`; fills in what comes from there.
DriverSetup look_at_files(const std::filesystem::path& root);

/// Why CUDA cannot work there: what there is, what fails, and what to do, in one sentence without
/// a full stop. Empty if nothing speaks against it. `built_with`: CUDA_VERSION of the kernels.
std::string trouble_with(const DriverSetup& setup, int built_with);

/// The same of this machine, looked at when first asked. Opens NVML. Any thread.
const std::string& driver_trouble();

} // namespace whorl::gpu
