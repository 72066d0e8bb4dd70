#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpu/nvml_abi.h"

namespace whorl::gpu {

// clang-format off
#define WHORL_NVML_FUNCTIONS(function)                                                            \
  function(nvmlInit_v2) function(nvmlErrorString) function(nvmlSystemGetDriverVersion)            \
  function(nvmlDeviceGetCount_v2) function(nvmlDeviceGetHandleByIndex_v2)                         \
  function(nvmlDeviceGetName) function(nvmlDeviceGetUUID) function(nvmlDeviceGetPciInfo_v3)       \
  function(nvmlDeviceGetMemoryInfo) function(nvmlDeviceGetClockInfo)                              \
  function(nvmlDeviceGetMaxClockInfo) function(nvmlDeviceGetCurrentClocksThrottleReasons)         \
  function(nvmlDeviceGetPowerUsage) function(nvmlDeviceGetEnforcedPowerLimit)                     \
  function(nvmlDeviceGetMigMode) function(nvmlDeviceGetNvLinkState)                               \
  function(nvmlDeviceGetNvLinkVersion) function(nvmlDeviceGetNvLinkRemotePciInfo_v2)              \
  function(nvmlDeviceGetNvLinkRemoteDeviceType) function(nvmlDeviceGetP2PStatus)
// clang-format on

/// NVIDIA's management library, loaded at run time and initialised; never closed. Answers also
/// where no program has initialised the CUDA driver, and says why none can. Any thread.
class Nvml {
 public:
  enum class State { kReady, kNoLibrary, kOldLibrary, kFailed };

  /// Returns this machine's library; opens it at the first call, which takes milliseconds.
  static const Nvml& instance();
  /// Opens another library, for tests.
  explicit Nvml(const char* library);

  State state() const { return state_; }
  /// Returns the result of the initialisation; for kReady and kFailed.
  nvmlReturn_t code() const { return code_; }
  /// Says why the library is not ready, in the words of the library or the loader.
  const std::string& error() const { return error_; }

  /// Returns the functions. Only for kReady, like all functions below.
  const auto* operator->() const { return &functions_; }
  /// Returns "580.95.05"; empty if unknown.
  std::string driver_version() const;
  /// Returns all devices that this process may see, in NVML's order, which CUDA_VISIBLE_DEVICES
  /// does not change.
  std::vector<nvmlDevice_t> devices() const;
  /// Returns "00000000:3b:00.0", as in /sys but for the longer domain; empty if unknown.
  std::string bus_id(nvmlDevice_t device) const;

 private:
  struct Functions {
#define WHORL_NVML_MEMBER(name) decltype(&::name) name = nullptr;
    WHORL_NVML_FUNCTIONS(WHORL_NVML_MEMBER)
#undef WHORL_NVML_MEMBER
  };
  Functions functions_;
  State state_ = State::kNoLibrary;
  nvmlReturn_t code_ = NVML_SUCCESS;
  std::string error_;
};

/// Facts about the device that a figure was measured on. Values that a device does not give are
/// missing.
struct DeviceFacts {
  std::string name, uuid, bus_id;
  unsigned long long memory_bytes = 0;
  std::optional<unsigned> sm_clock_mhz, max_sm_clock_mhz, memory_clock_mhz;
  std::optional<unsigned> power_mw, power_limit_mw;
  std::optional<bool> partitioned; ///< whether MIG divides the device
  /// Reasons that keep the clocks below their maximum now: "software power cap"; also "idle".
  std::vector<std::string> slowed_by;
};
DeviceFacts facts_of(const Nvml& nvml, nvmlDevice_t device);

/// Returns the names of NVML's nvmlClocksThrottleReason bits; numbers for unknown bits.
std::vector<std::string> slowdown_names(unsigned long long reasons);

/// Returns a bus id as NVML writes it, but in lower case.
std::string text_of(const nvmlPciInfo_t& info);

} // namespace whorl::gpu
