#include "gpu/modules.h"

#include <fmt/format.h>

#include <string>

namespace whorl::gpu {
namespace {

/// Says why the driver may have refused the kernels.
std::string requirements() {
  int version = 0;
  if (driver()->cuDriverGetVersion(&version) == CUDA_SUCCESS &&
      version / 1000 < CUDA_VERSION / 1000) {
    return fmt::format(
        "whorl's kernels were compiled by CUDA {} and need a driver for CUDA {} or "
        "newer, this one is for CUDA {}; install a newer driver or its compatibility "
        "package, or build whorl with CUDA {}",
        version_text(CUDA_VERSION), CUDA_VERSION / 1000, version_text(version), version / 1000);
  }
  return "whorl has them for devices of compute capability 8.0 and later";
}

} // namespace

Result<CUmodule> load_module(const char* fatbin, std::string_view what) {
  CUmodule module = nullptr;
  const CUresult result = driver()->cuModuleLoadData(&module, fatbin);
  if (result == CUDA_SUCCESS) return module;
  const std::string message = check(result, fmt::format("loading the {}", what)).message();
  return Status::error(Code::kCudaError, fmt::format("{}; {}", message, requirements()));
}

} // namespace whorl::gpu
