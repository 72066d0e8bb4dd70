// libnvidia-ml.so.1 of the pretended devices, see device.h. Each call reads the environment:
//   FAKE_CUDA_DEVICES  number of devices (1)
//   FAKE_NVML_INIT     result of nvmlInit() (0)
//   FAKE_NVML_LINKS    number of NVLinks of each pair of devices (0)
//   FAKE_NVML_SWITCH   if set, each device has FAKE_NVML_LINKS links to a switch instead
//   FAKE_NVML_SLOWED   bit mask of the reasons for slower clocks (1: idle)
// Links are numbered from 0, those to the device of the lowest index first. Functions that a device
// cannot carry out return the errors of nvml.h: a link beyond the last is an invalid argument, and
// a device without NVLink does not support the call.

#include "gpu/nvml_abi.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#pragma GCC visibility push(default)

namespace {

unsigned setting(const char* name, unsigned otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(text, nullptr, 0));
}

unsigned devices() { return setting("FAKE_CUDA_DEVICES", 1); }
bool switched() { return std::getenv("FAKE_NVML_SWITCH") != nullptr; }
unsigned links_each() { return setting("FAKE_NVML_LINKS", 0); }
unsigned links_of_device() { return switched() ? links_each() : links_each() * (devices() - 1); }

nvmlDevice_t handle_of(unsigned index) {
  return reinterpret_cast<nvmlDevice_t>(std::uintptr_t{index} + 1);
}
unsigned index_of(nvmlDevice_t device) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(device) - 1);
}

void write_pci(unsigned bus, nvmlPciInfo_t* info) {
  std::memset(info, 0, sizeof *info);
  info->bus = bus;
  std::snprintf(info->busId, sizeof info->busId, "00000000:%02X:00.0", bus & 0xff);
  std::snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "0000:%02X:00.0", bus & 0xff);
}
unsigned bus_of(unsigned index) { return 0x1b + 16 * index; }
constexpr unsigned kBusOfSwitch = 0xe0;

nvmlReturn_t check_link(unsigned link) {
  if (links_of_device() == 0) return NVML_ERROR_NOT_SUPPORTED;
  return link < links_of_device() ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

} // namespace

extern "C" {

nvmlReturn_t nvmlInit_v2() { return static_cast<nvmlReturn_t>(setting("FAKE_NVML_INIT", 0)); }

const char* nvmlErrorString(nvmlReturn_t code) {
  switch (code) {
    case NVML_SUCCESS:
      return "Success";
    case NVML_ERROR_NO_PERMISSION:
      return "Insufficient Permissions";
    case NVML_ERROR_DRIVER_NOT_LOADED:
      return "Driver Not Loaded";
    case NVML_ERROR_GPU_IS_LOST:
      return "GPU is lost";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH:
      return "Driver/library version mismatch";
    default:
      return "Unknown Error";
  }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned length) {
  std::snprintf(version, length, "pretended");
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  *count = devices();
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  if (index >= devices()) return NVML_ERROR_INVALID_ARGUMENT;
  *device = handle_of(index);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t, char* name, unsigned length) {
  std::snprintf(name, length, "pretended device");
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned length) {
  std::snprintf(uuid, length, "GPU-%02x000000-0000-0000-0000-000000000000", index_of(device) + 1);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* info) {
  write_pci(bus_of(index_of(device)), info);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t* memory) {
  *memory = {1ULL << 30, 1ULL << 30, 0};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t, nvmlClockType_t type, unsigned* mhz) {
  *mhz = type == NVML_CLOCK_SM ? 345 : 2619;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t, nvmlClockType_t type, unsigned* mhz) {
  *mhz = type == NVML_CLOCK_SM ? 1980 : 2619;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t, unsigned long long* mask) {
  *mask = setting("FAKE_NVML_SLOWED", 1);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t, unsigned* milliwatts) {
  *milliwatts = 70000;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t, unsigned* milliwatts) {
  *milliwatts = 700000;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t, unsigned*, unsigned*) {
  return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t, unsigned link, unsigned* active) {
  *active = 1;
  return check_link(link);
}
nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t, unsigned link, unsigned* version) {
  *version = 4;
  return check_link(link);
}
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link,
                                                 nvmlPciInfo_t* info) {
  if (const nvmlReturn_t bad = check_link(link); bad != NVML_SUCCESS) return bad;
  unsigned peer = link / std::max(links_each(), 1U);
  if (peer >= index_of(device)) ++peer; // no links to itself
  write_pci(switched() ? kBusOfSwitch : bus_of(peer), info);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t, unsigned link,
                                                 nvmlIntNvLinkDeviceType_t* type) {
  *type = switched() ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
  return check_link(link);
}
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t, nvmlDevice_t, nvmlGpuP2PCapsIndex_t capability,
                                    nvmlGpuP2PStatus_t* status) {
  const bool linked = links_of_device() > 0;
  const bool needs_links =
      capability == NVML_P2P_CAPS_INDEX_NVLINK || capability == NVML_P2P_CAPS_INDEX_ATOMICS;
  *status = linked        ? NVML_P2P_STATUS_OK
            : needs_links ? NVML_P2P_STATUS_NOT_SUPPORTED
                          : NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED;
  return NVML_SUCCESS;
}

} // extern "C"
