#include "gpu/memory_kind.h"

#include "gpu/driver.h"
#include "gpu/fault.h"

namespace whorl::gpu {

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
  // Of memory that the driver does not know the type is 0. An error means that the program does not
  // use the driver; but a lost device may have the memory, and the host must not touch it.
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  const CUresult result = cuda->cuPointerGetAttributes(4, attributes, values, address);
  if (is_fault(result)) return {.kind = MemoryKind::kDevice};
  if (result != CUDA_SUCCESS || type == 0) return {};
  const MemoryKind kind = managed != 0                   ? MemoryKind::kManaged
                          : type == CU_MEMORYTYPE_DEVICE ? MemoryKind::kDevice
                                                         : MemoryKind::kPinned;
  return {.kind = kind, .device = device, .context = context};
}

} // namespace whorl::gpu
