// Memory that other ranks of the host can map, and kinds of memory.
#include "device/common/memory.h"
#include "api/support.h"
#include "memory/heap.h"

using namespace whorl;       // NOLINT: this file is the bridge between the two worlds
using namespace whorl::capi; // NOLINT

static_assert(static_cast<int>(gpu::MemoryKind::kHost) == whorlMemoryHost);
static_assert(static_cast<int>(gpu::MemoryKind::kPinned) == whorlMemoryPinned);
static_assert(static_cast<int>(gpu::MemoryKind::kManaged) == whorlMemoryManaged);
static_assert(static_cast<int>(gpu::MemoryKind::kDevice) == whorlMemoryDevice);

namespace whorl::capi {

Status register_memory(const char* function, const whorlComm* comm, void* buff, std::size_t size,
                       void** handle) {
  WHORL_TRY(check_ready(function, comm));
  if (handle == nullptr) return invalid(function, "handle is NULL");
  *handle = nullptr;
  if (buff == nullptr && size > 0) return invalid(function, "buff is NULL");
  // Devices keep the addresses of pages that they know, so these cannot be moved.
  if (known_to_device(buff)) return {};
  const auto adopted = heap_adopt(buff, size);
  if (!adopted.ok()) return adopted.status().with_context(function);
  *handle = *adopted;
  return {};
}

Status deregister_memory(const char* function, const whorlComm* comm, void* handle) {
  WHORL_TRY(check_handle(function, comm));
  return heap_release(static_cast<HeapRegistration*>(handle)).with_context(function);
}

} // namespace whorl::capi

extern "C" {

whorlResult_t whorlMemAlloc(void** ptr, size_t size) {
  return guarded("whorlMemAlloc", [&]() -> Status {
    if (ptr == nullptr) return invalid("whorlMemAlloc", "ptr is NULL");
    *ptr = nullptr;
    if (size == 0) return {};
    const auto memory = heap_alloc(size);
    if (!memory.ok()) return memory.status().with_context("whorlMemAlloc");
    *ptr = *memory;
    return {};
  });
}

whorlResult_t whorlMemAllocDevice(void** ptr, size_t size) {
  return guarded("whorlMemAllocDevice", [&]() -> Status {
    if (ptr == nullptr) return invalid("whorlMemAllocDevice", "ptr is NULL");
    *ptr = nullptr;
    if (size == 0) return {};
    mark_used();
    const auto memory = device_alloc(size);
    if (!memory.ok()) return memory.status().with_context("whorlMemAllocDevice");
    *ptr = *memory;
    return {};
  });
}

whorlResult_t whorlPointerKind(const void* pointer, whorlMemoryKind_t* kind, int* device) {
  if (kind == nullptr) {
    return guarded("whorlPointerKind", [] { return invalid("whorlPointerKind", "kind is NULL"); });
  }
  const auto place = place_of_pointer(pointer);
  *kind = static_cast<whorlMemoryKind_t>(place.kind);
  if (device != nullptr) *device = place.device;
  return whorlSuccess;
}

whorlResult_t whorlCommMemStats(whorlComm_t comm, whorlCommMemStat_t stat, uint64_t* value) {
  return guarded("whorlCommMemStats", comm, [&]() -> Status {
    WHORL_TRY(check_created("whorlCommMemStats", comm));
    if (value == nullptr) return invalid("whorlCommMemStats", "value is NULL");
    const Communicator::Memory now = comm->communicator->memory();
    const TransportMemory& transports = now.transports;
    switch (stat) {
      case whorlStatGpuMemSuspend:
      case whorlStatGpuMemSuspended:
      case whorlStatGpuMemPersist:
      case whorlStatGpuMemTotal:
        *value = 0;
        return {};
      case whorlStatHostMemTotal:
        *value = transports.fifos + now.workspaces + now.plans + transports.kernel + now.fixed;
        return {};
      case whorlStatHostMemFifos:
        *value = transports.fifos;
        return {};
      case whorlStatHostMemWorkspaces:
        *value = now.workspaces;
        return {};
      case whorlStatHostMemPlans:
        *value = now.plans;
        return {};
      case whorlStatHostMemSocketBuffers:
        *value = transports.kernel;
        return {};
      case whorlStatHostMemFixed:
        *value = now.fixed;
        return {};
      case whorlStatHostMemReserved:
        *value = transports.reserved;
        return {};
      case whorlStatHostMemShared:
        *value = transports.shared;
        return {};
      case whorlStatHostMemHeap:
        *value = heap_bytes();
        return {};
      case whorlStatHostMemBudget:
        *value = comm->communicator->memory_budget();
        return {};
      case whorlStatMessagesZeroCopy:
        *value = now.zero_copy_messages;
        return {};
    }
    return invalid("whorlCommMemStats", fmt::format("stat is {}, which is no whorlCommMemStat_t",
                                                    static_cast<int>(stat)));
  });
}

whorlResult_t whorlMemFree(void* ptr) {
  return guarded("whorlMemFree", [&]() -> Status {
    if (ptr == nullptr) return {};
    const Status freed = is_device_alloc(ptr) ? device_free(ptr) : heap_free(ptr);
    return freed.with_context("whorlMemFree");
  });
}

whorlResult_t whorlCommRegister(const whorlComm_t comm, void* buff, size_t size, void** handle) {
  constexpr const char* kName = "whorlCommRegister";
  return guarded(kName, comm, [&] { return register_memory(kName, comm, buff, size, handle); });
}

whorlResult_t whorlCommDeregister(const whorlComm_t comm, void* handle) {
  constexpr const char* kName = "whorlCommDeregister";
  return guarded(kName, comm, [&] { return deregister_memory(kName, comm, handle); });
}

} // extern "C"
