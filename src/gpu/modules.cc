#include "gpu/modules.h"

#include <fmt/format.h>

#include "gpu/images.h"

namespace whorl::gpu {
namespace {

/// Says why the driver may have refused the kernels for the device of the current context.
std::string requirements() {
  int version = 0, major = 0, minor = 0;
  CUdevice device = 0;
  const Driver& driver = *gpu::driver();
  if (driver.cuDriverGetVersion(&version) != CUDA_SUCCESS ||
      driver.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
      driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) !=
          CUDA_SUCCESS ||
      driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) !=
          CUDA_SUCCESS) {
    return "whorl has " + describe(images());
  }
  return what_is_missing(images(), version, 10 * major + minor);
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
