#include "gpu/images.h"

#include <cuda.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "gpu/driver.h"

namespace whorl::gpu {
namespace {

std::string capability_text(int capability) {
  return fmt::format("{}.{}", capability / 10, capability % 10);
}

} // namespace

bool Images::have_code_for(int capability) const noexcept {
  return std::any_of(archs.begin(), archs.end(),
                     [&](int arch) { return arch / 10 == capability / 10 && arch <= capability; });
}

Images images() noexcept {
  static const auto& archs = *new std::vector<int>{WHORL_CUDA_ARCHS}; // threads outlive main()
  return {CUDA_VERSION, archs};
}

std::string describe(const Images& images) {
  std::vector<std::string> capabilities;
  for (const int arch : images.archs) capabilities.push_back(capability_text(arch));
  const std::string code =
      capabilities.empty()
          ? std::string("no machine code")
          : fmt::format(
                "machine code for compute capability {} and later ones of the same major "
                "number, for drivers of CUDA {} and newer",
                fmt::join(capabilities, ", "), images.cuda_version / 1000);
  return fmt::format("{}; a form for all devices from 8.0 on, for drivers of CUDA {} and newer",
                     code, version_text(images.cuda_version));
}

std::string what_is_missing(const Images& images, int driver_version, int capability) {
  const int major = images.cuda_version / 1000;
  if (driver_version / 1000 < major) {
    return fmt::format(
        "whorl's kernels were compiled by CUDA {} and need a driver for CUDA {} or "
        "newer, this one is for CUDA {}; install a newer driver or its compatibility "
        "package, or build whorl with CUDA {}",
        version_text(images.cuda_version), major, version_text(driver_version),
        driver_version / 1000);
  }
  if (capability < 80) {
    return fmt::format("whorl has kernels for compute capability 8.0 and later, this device has {}",
                       capability_text(capability));
  }
  if (!images.have_code_for(capability) && driver_version < images.cuda_version) {
    return fmt::format(
        "whorl has no machine code for this device, of compute capability {}, and a driver for "
        "CUDA {} or newer makes it, this one is for CUDA {}; install a newer driver, or build "
        "whorl with -Dkernel_archs={} or with CUDA {}",
        capability_text(capability), version_text(images.cuda_version),
        version_text(driver_version), capability, version_text(driver_version));
  }
  return fmt::format("whorl has {}; this device has compute capability {} and a driver for CUDA {}",
                     describe(images), capability_text(capability), version_text(driver_version));
}

} // namespace whorl::gpu
