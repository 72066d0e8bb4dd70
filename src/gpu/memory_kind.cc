#include "gpu/memory_kind.h"

#include "gpu/driver.h"

namespace whorl::gpu {
namespace {

/// Whether an answer means that this process has no memory of a device: it does not use the driver,
/// or cannot.
bool means_host(CUresult result) noexcept {
  switch (result) {
    case CUDA_ERROR_NOT_INITIALIZED: // a child of fork(), too
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return true;
    default:
      return false;
  }
}

} // namespace

MemoryPlace place_of(const void* pointer) noexcept {
  const Driver* const cuda = driver();
  if (cuda == nullptr || pointer == nullptr) return {};
  unsigned type = 0;
  unsigned managed = 0;
  int device = -1;
  CUcontext context = nullptr;
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT};
  void* values[] = {&type, &managed, &device, &context};
  // Of memory that the driver does not know the type is 0. After an error that says nothing of the
  // memory, the host must not touch it; the next call of the driver tells what is wrong.
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  const CUresult result = cuda->cuPointerGetAttributes(4, attributes, values, address);
  if (result != CUDA_SUCCESS) {
    return {.kind = means_host(result) ? MemoryKind::kHost : MemoryKind::kDevice};
  }
  if (type == 0) return {};
  const MemoryKind kind = managed != 0                   ? MemoryKind::kManaged
                          : type == CU_MEMORYTYPE_DEVICE ? MemoryKind::kDevice
                                                         : MemoryKind::kPinned;
  return {.kind = kind, .device = device, .context = context};
}

} // namespace whorl::gpu
