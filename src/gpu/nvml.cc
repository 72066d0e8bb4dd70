#include "gpu/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <string_view>
#include <utility>

namespace whorl::gpu {
namespace {

template <class T, class Function, class... Arguments>
std::optional<T> ask(Function function, Arguments... arguments) {
  T value{};
  if (function(arguments..., &value) != NVML_SUCCESS) return std::nullopt;
  return value;
}

template <std::size_t kBytes, class Function, class... Arguments>
std::string ask_text(Function function, Arguments... arguments) {
  std::array<char, kBytes> text{};
  if (function(arguments..., text.data(), kBytes) != NVML_SUCCESS) return {};
  text.back() = '\0';
  return text.data();
}

} // namespace

const Nvml& Nvml::instance() {
  static const auto& machine = *new Nvml("libnvidia-ml.so.1");
  return machine;
}

Nvml::Nvml(const char* library) {
  void* const loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    error_ = dlerror();
    return;
  }
  const char* missing = nullptr;
#define WHORL_NVML_FIND(name)                                                  \
  functions_.name = reinterpret_cast<decltype(&::name)>(dlsym(loaded, #name)); \
  if (functions_.name == nullptr && missing == nullptr) missing = #name;
  WHORL_NVML_FUNCTIONS(WHORL_NVML_FIND)
#undef WHORL_NVML_FIND
  if (missing != nullptr) {
    state_ = State::kOldLibrary;
    error_ = fmt::format("{} has no {}", library, missing);
    return;
  }
  code_ = functions_.nvmlInit_v2();
  state_ = code_ == NVML_SUCCESS ? State::kReady : State::kFailed;
  if (state_ == State::kFailed) error_ = functions_.nvmlErrorString(code_);
}

std::string Nvml::driver_version() const {
  return ask_text<NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE>(functions_.nvmlSystemGetDriverVersion);
}

std::vector<nvmlDevice_t> Nvml::devices() const {
  std::vector<nvmlDevice_t> all;
  const unsigned count = ask<unsigned>(functions_.nvmlDeviceGetCount_v2).value_or(0);
  for (unsigned i = 0; i < count; ++i) {
    // leaves out devices that this process may not use
    const auto device = ask<nvmlDevice_t>(functions_.nvmlDeviceGetHandleByIndex_v2, i);
    if (device) all.push_back(*device);
  }
  return all;
}

std::string Nvml::bus_id(nvmlDevice_t device) const {
  const auto info = ask<nvmlPciInfo_t>(functions_.nvmlDeviceGetPciInfo_v3, device);
  return info ? text_of(*info) : std::string();
}

std::string text_of(const nvmlPciInfo_t& info) {
  std::string text(info.busId, strnlen(info.busId, sizeof info.busId));
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text;
}

DeviceFacts facts_of(const Nvml& nvml, nvmlDevice_t device) {
  DeviceFacts facts;
  facts.name = ask_text<NVML_DEVICE_NAME_V2_BUFFER_SIZE>(nvml->nvmlDeviceGetName, device);
  facts.uuid = ask_text<NVML_DEVICE_UUID_V2_BUFFER_SIZE>(nvml->nvmlDeviceGetUUID, device);
  facts.bus_id = nvml.bus_id(device);
  if (const auto memory = ask<nvmlMemory_t>(nvml->nvmlDeviceGetMemoryInfo, device)) {
    facts.memory_bytes = memory->total;
  }
  facts.sm_clock_mhz = ask<unsigned>(nvml->nvmlDeviceGetClockInfo, device, NVML_CLOCK_SM);
  facts.max_sm_clock_mhz = ask<unsigned>(nvml->nvmlDeviceGetMaxClockInfo, device, NVML_CLOCK_SM);
  facts.memory_clock_mhz = ask<unsigned>(nvml->nvmlDeviceGetClockInfo, device, NVML_CLOCK_MEM);
  facts.power_mw = ask<unsigned>(nvml->nvmlDeviceGetPowerUsage, device);
  facts.power_limit_mw = ask<unsigned>(nvml->nvmlDeviceGetEnforcedPowerLimit, device);
  unsigned current = 0;
  unsigned pending = 0;
  if (nvml->nvmlDeviceGetMigMode(device, &current, &pending) == NVML_SUCCESS) {
    facts.partitioned = current != 0;
  }
  facts.slowed_by = slowdown_names(
      ask<unsigned long long>(nvml->nvmlDeviceGetCurrentClocksThrottleReasons, device).value_or(0));
  return facts;
}

std::vector<std::string> slowdown_names(unsigned long long reasons) {
  static constexpr std::array<std::string_view, 9> kNames{"idle",
                                                          "application clocks",
                                                          "software power cap",
                                                          "hardware slowdown",
                                                          "sync boost",
                                                          "software thermal slowdown",
                                                          "hardware thermal slowdown",
                                                          "power brake",
                                                          "display clocks"};
  std::vector<std::string> names;
  for (std::size_t bit = 0; bit < 64; ++bit) {
    if ((reasons >> bit & 1) == 0) continue;
    names.push_back(bit < kNames.size() ? std::string(kNames[bit]) : fmt::format("reason {}", bit));
  }
  return names;
}

} // namespace whorl::gpu
