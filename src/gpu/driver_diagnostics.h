#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/nvml.h"

namespace whorl::gpu {

/// State of a machine's GPUs and their driver, as far as it can be seen without initialising CUDA.
struct DriverSetup {
  int gpus = 0;              ///< number of NVIDIA GPUs on the PCI bus
  std::string kernel_module; ///< version of the loaded module; empty: none
  bool nodes = false;        ///< whether /dev/nvidiactl exists
  std::string closed_node;   ///< path of a /dev/nvidia* that this process may not open; empty: none
  std::string cuda_error;    ///< reason why libcuda.so.1 cannot be loaded; empty: it can
  int cuda_version = 0;      ///< version of libcuda.so.1, in the form of CUDA_VERSION; 0: unknown
  bool cuda_works = false;   ///< whether this process has initialised CUDA and has a device
  Nvml::State nvml = Nvml::State::kNoLibrary;
  nvmlReturn_t nvml_code = NVML_SUCCESS;
  std::string nvml_error;
};

/// Reads /proc, /sys and /dev below `root`; fills in the fields that come from there.
DriverSetup look_at_files(const std::filesystem::path& root);

/// Says why CUDA cannot work there: what is there, what fails, and what to do, in one sentence
/// without a full stop. Empty if no reason is found. `built_with`: CUDA_VERSION of the kernels.
std::string diagnose_driver(const DriverSetup& setup, int built_with);

/// Diagnoses this machine at the first call; returns the same afterwards. Opens NVML. Any thread.
const std::string& driver_diagnostics();

} // namespace whorl::gpu
