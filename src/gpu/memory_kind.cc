#include "gpu/memory_kind.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

namespace whorl::gpu {
namespace {

// Constants of the CUDA driver's interface: this file is compiled without cuda.h, too.
constexpr int kSuccess = 0;
// Errors that mean host memory: this process does not use the driver, or cannot, or the driver does
// not know the address.
constexpr std::array kMeansHost{1 /* value */,
                                3 /* not initialized; a child of fork(), too */,
                                4 /* deinitialized */,
                                34 /* stub library */,
                                100 /* no device */,
                                201 /* context */,
                                802 /* system not ready */,
                                803 /* driver mismatch */,
                                804 /* no compatibility on device */};
constexpr int kContext = 1, kMemoryType = 2, kIsManaged = 8, kDeviceOrdinal = 9;
constexpr unsigned kDeviceMemory = 2;

#if __has_include(<cuda.h>)
static_assert(kContext == CU_POINTER_ATTRIBUTE_CONTEXT &&
              kMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE &&
              kIsManaged == CU_POINTER_ATTRIBUTE_IS_MANAGED &&
              kDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL &&
              kDeviceMemory == CU_MEMORYTYPE_DEVICE && kSuccess == CUDA_SUCCESS);
static_assert(kMeansHost == std::array<int, 9>{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_INITIALIZED,
                                               CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_STUB_LIBRARY,
                                               CUDA_ERROR_NO_DEVICE, CUDA_ERROR_INVALID_CONTEXT,
                                               CUDA_ERROR_SYSTEM_NOT_READY,
                                               CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
                                               CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE});
#endif

/// cuPointerGetAttributes().
using GetAttributes = int (*)(unsigned count, int* attributes, void** values,
                              unsigned long long pointer);

/// Returns how many libraries this process has loaded so far; not 0.
unsigned long long count_loads() noexcept {
  unsigned long long loads = 0;
  const auto first = [](dl_phdr_info* info, std::size_t, void* count) {
    *static_cast<unsigned long long*>(count) = info->dlpi_adds;
    return 1; // the number is the same for all
  };
  dl_iterate_phdr(first, &loads);
  return loads;
}

/// Returns the function of the driver that this process has loaded, or null. Who has memory of a
/// device has loaded the driver.
GetAttributes find_get_attributes() noexcept {
  static constinit std::atomic<GetAttributes> found{nullptr};
  GetAttributes function = found.load(std::memory_order_relaxed); // code, which is always there
  if (function != nullptr) return function;
  // A library that is not loaded is searched for in the file system, so only after others have
  // been loaded.
  static constinit std::atomic<unsigned long long> looked_at{0};
  const unsigned long long loads = count_loads();
  if (loads == looked_at.load(std::memory_order_relaxed)) return nullptr;
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library != nullptr) {
    function = reinterpret_cast<GetAttributes>(dlsym(library, "cuPointerGetAttributes"));
    if (function == nullptr) dlclose(library);
  }
  if (function == nullptr) {
    looked_at.store(loads, std::memory_order_relaxed);
    return nullptr;
  }
  found.store(function, std::memory_order_relaxed); // the library is kept open for it
  return function;
}

} // namespace

MemoryPlace place_of(const void* pointer) noexcept {
  const GetAttributes get_attributes = pointer != nullptr ? find_get_attributes() : nullptr;
  if (get_attributes == nullptr) return {};
  unsigned type = 0;
  unsigned managed = 0;
  int device = -1;
  void* context = nullptr;
  int attributes[] = {kMemoryType, kIsManaged, kDeviceOrdinal, kContext};
  void* values[] = {&type, &managed, &device, &context};
  // The type of memory that the driver does not know is 0. After an error that says nothing about
  // the memory, the host must not touch it; the next call of the driver reports the error.
  const int result =
      get_attributes(4, attributes, values, reinterpret_cast<unsigned long long>(pointer));
  if (result != kSuccess) {
    const bool host = std::find(kMeansHost.begin(), kMeansHost.end(), result) != kMeansHost.end();
    return {.kind = host ? MemoryKind::kHost : MemoryKind::kDevice};
  }
  if (type == 0) return {};
  const MemoryKind kind = managed != 0            ? MemoryKind::kManaged
                          : type == kDeviceMemory ? MemoryKind::kDevice
                                                  : MemoryKind::kPinned;
  return {.kind = kind, .device = device, .context = context};
}

} // namespace whorl::gpu
