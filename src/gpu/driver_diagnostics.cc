#include "gpu/driver_diagnostics.h"

#include <cuda.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <system_error>

#include "gpu/driver.h"

namespace whorl::gpu {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Returns the first word that begins with a digit and has a point, as in "NVRM version: NVIDIA
/// UNIX Open Kernel Module for x86_64  580.95.05  Release Build …".
std::string version_in(std::string_view line) {
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find_first_of(" \t"));
    if (!word.empty() && word[0] >= '0' && word[0] <= '9' &&
        word.find('.') != std::string_view::npos) {
      return std::string(word);
    }
    line.remove_prefix(std::min(word.size() + 1, line.size()));
  }
  return {};
}

int gpus_on_bus(const fs::path& root) {
  int gpus = 0;
  std::error_code error;
  for (const auto& device : fs::directory_iterator(root / "sys/bus/pci/devices", error)) {
    // Class 0x03…: display controllers, including those without a display.
    if (first_line(device.path() / "vendor") == "0x10de" &&
        first_line(device.path() / "class").starts_with("0x03")) {
      ++gpus;
    }
  }
  if (gpus > 0) return gpus;
  for ([[maybe_unused]] const auto& device :
       fs::directory_iterator(root / "proc/driver/nvidia/gpus", error)) {
    ++gpus;
  }
  return gpus;
}

std::string what_is_there(const DriverSetup& setup) {
  const std::string gpus = setup.gpus == 0 ? std::string("this machine shows no NVIDIA GPU")
                                           : fmt::format("this machine has {} NVIDIA GPU{}",
                                                         setup.gpus, setup.gpus == 1 ? "" : "s");
  return setup.kernel_module.empty()
             ? gpus + " and no NVIDIA kernel module is loaded"
             : fmt::format("{} and NVIDIA's kernel module {} is loaded", gpus, setup.kernel_module);
}

std::string without_library(const DriverSetup& setup) {
  if (setup.gpus == 0 && setup.kernel_module.empty()) {
    return fmt::format("there is no CUDA driver: {}; install NVIDIA's driver, or use host memory",
                       setup.cuda_error);
  }
  return fmt::format(
      "{}, but there is no CUDA driver library: {}; install the driver's libraries{}, or, in a "
      "container, start it with NVIDIA's container runtime and NVIDIA_DRIVER_CAPABILITIES="
      "compute,utility",
      what_is_there(setup), setup.cuda_error,
      setup.kernel_module.empty() ? std::string() : " of version " + setup.kernel_module);
}

std::string closed(const DriverSetup& setup) {
  return fmt::format(
      "{}, but this process may not open {}; run it as a user or in a group that may, or make the "
      "device files readable and writable",
      what_is_there(setup), setup.closed_node);
}

std::string nvml_failure(const DriverSetup& setup) {
  switch (setup.nvml_code) {
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH:
      return fmt::format(
          "{}, but the driver's libraries are of another version ({}); load the kernel module of "
          "the libraries' version (restart the machine after an update of the driver), or, in a "
          "container, use the libraries of its host",
          what_is_there(setup), setup.nvml_error);
    case NVML_ERROR_NO_PERMISSION:
      return fmt::format(
          "{}, but this process may not use the driver ({}); run it as a user that may open "
          "/dev/nvidiactl and /dev/nvidia0",
          what_is_there(setup), setup.nvml_error);
    case NVML_ERROR_DRIVER_NOT_LOADED:
      if (!setup.kernel_module.empty() && !setup.nodes) {
        return fmt::format(
            "{}, but there is no /dev/nvidiactl; run nvidia-modprobe or nvidia-smi once as root, "
            "or, in a container, start it with NVIDIA's container runtime",
            what_is_there(setup));
      }
      return fmt::format(
          "{}, and the driver's libraries cannot reach it ({}); load the module with "
          "`modprobe nvidia`",
          what_is_there(setup), setup.nvml_error);
    case NVML_ERROR_GPU_IS_LOST:
      return fmt::format(
          "{}, but a GPU does not answer any more ({}); `dmesg | grep Xid` says why, and a restart "
          "of the machine may bring it back",
          what_is_there(setup), setup.nvml_error);
    default:
      return {}; // CUDA may still work
  }
}

DriverSetup look_at_machine() {
  DriverSetup setup = look_at_files("/");
  if (void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    const auto version =
        reinterpret_cast<decltype(&cuDriverGetVersion)>(dlsym(library, "cuDriverGetVersion"));
    const auto count =
        reinterpret_cast<decltype(&cuDeviceGetCount)>(dlsym(library, "cuDeviceGetCount"));
    int devices = 0;
    if (version == nullptr || version(&setup.cuda_version) != CUDA_SUCCESS) setup.cuda_version = 0;
    // cuDeviceGetCount() fails before cuInit().
    setup.cuda_works = count != nullptr && count(&devices) == CUDA_SUCCESS && devices > 0;
  } else {
    setup.cuda_error = dlerror();
  }
  const Nvml& nvml = Nvml::instance();
  setup.nvml = nvml.state();
  setup.nvml_code = nvml.code();
  setup.nvml_error = nvml.error();
  return setup;
}

} // namespace

DriverSetup look_at_files(const fs::path& root) {
  DriverSetup setup;
  setup.gpus = gpus_on_bus(root);
  setup.kernel_module = version_in(first_line(root / "proc/driver/nvidia/version"));
  setup.nodes = access((root / "dev/nvidiactl").c_str(), F_OK) == 0;
  for (const char* const name : {"nvidiactl", "nvidia-uvm", "nvidia0"}) {
    const fs::path node = root / "dev" / name;
    if (access(node.c_str(), F_OK) == 0 && access(node.c_str(), R_OK | W_OK) != 0 &&
        setup.closed_node.empty()) {
      setup.closed_node = node;
    }
  }
  return setup;
}

std::string diagnose_driver(const DriverSetup& setup, int built_with) {
  if (!setup.cuda_error.empty()) return without_library(setup);
  if (!setup.cuda_works) {
    // An error of NVML says less than a file that cannot be opened. A process may be given one GPU
    // of several, so a closed /dev/nvidia0 is no error as long as NVML works.
    if (setup.nvml != Nvml::State::kReady && !setup.closed_node.empty()) return closed(setup);
    if (setup.nvml == Nvml::State::kFailed) {
      if (std::string problem = nvml_failure(setup); !problem.empty()) return problem;
    }
  }
  if (setup.cuda_version != 0 && setup.cuda_version / 1000 < built_with / 1000) {
    return fmt::format(
        "{}, but its driver is for CUDA {} and whorl's kernels were compiled by CUDA {}; install a "
        "driver for CUDA {} or its compatibility package, or build whorl with CUDA {}",
        what_is_there(setup), version_text(setup.cuda_version), version_text(built_with),
        built_with / 1000, setup.cuda_version / 1000);
  }
  return {};
}

const std::string& driver_diagnostics() {
  static const auto& problem =
      *new std::string(diagnose_driver(look_at_machine(), CUDA_VERSION)); // threads outlive main()
  return problem;
}

} // namespace whorl::gpu
