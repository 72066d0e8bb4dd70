// Memory, registrations, windows.
#include "bindings/nccl/place.h"
#include "bindings/nccl/support.h"

using namespace whorl_nccl; // NOLINT: joins the names of both libraries

namespace {

/// Registers host memory. Device memory needs no registration: its handle is null.
ncclResult_t register_buffer(const char* function, ncclComm_t comm, void* buff, size_t size,
                             void** handle) noexcept {
  if (place_of(buff) == Place::kHost) {
    return report(whorlCommRegister(inner(comm), buff, size, handle));
  }
  if (handle != nullptr) *handle = nullptr;
  return check_device(function, "buff");
}

} // namespace

// Allocates device memory if the calling thread has a device, as a program with one expects.
WHORL_NCCL_DEFINE(ncclResult_t, ncclMemAlloc, (void** ptr, size_t size)) {
  return report(has_context() ? whorlMemAllocDevice(ptr, size) : whorlMemAlloc(ptr, size));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclMemFree, (void* ptr)) { return report(whorlMemFree(ptr)); }

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommRegister,
                  (const ncclComm_t comm, void* buff, size_t size, void** handle)) {
  return register_buffer("ncclCommRegister", comm, buff, size, handle);
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void* handle)) {
  return report(whorlCommDeregister(inner(comm), handle));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommWindowRegister,
                  (ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags)) {
  if (place_of(buff) == Place::kDevice) {
    if (const auto bad = check_device("ncclCommWindowRegister", "buff"); bad != ncclSuccess) {
      return bad;
    }
  }
  static_cast<void>(winFlags); // later releases have more of them, all for device memory
  return report(whorlCommWindowRegister(inner(comm), buff, size,
                                        reinterpret_cast<whorlWindow_t*>(win), WHORL_WIN_DEFAULT));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win)) {
  return report(whorlCommWindowDeregister(inner(comm), reinterpret_cast<whorlWindow_t>(win)));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclWinGetUserPtr,
                  (ncclComm_t comm, ncclWindow_t win, void** outUserPtr)) {
  return report(whorlWinGetUserPtr(inner(comm), reinterpret_cast<whorlWindow_t>(win), outUserPtr));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommMemStats,
                  (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value)) {
  return report(whorlCommMemStats(inner(comm), static_cast<whorlCommMemStat_t>(stat), value));
}
