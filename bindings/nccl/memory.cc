// Memory, registrations, windows.
#include <cstdint>
#include <map>
#include <mutex>

#include "bindings/nccl/place.h"
#include "bindings/nccl/support.h"

using namespace whorl_nccl; // NOLINT: joins the names of both libraries

namespace {

/// Registration with an address that the program can query.
struct Window {
  void* address;
  void* registration;
};

struct Windows {
  std::mutex mutex;
  std::map<ncclWindow_t, Window> all;
  std::uintptr_t last = 0; ///< last handle; handles are numbers that are never reused
};
Windows& windows() {
  static Windows& instance = *new Windows; // never destroyed: threads outlive main()
  return instance;
}

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
  static_cast<void>(winFlags); // flags concern device memory only
  if (win == nullptr) return fail(ncclInvalidArgument, "ncclCommWindowRegister: win is NULL");
  *win = nullptr;
  void* registration = nullptr;
  if (const ncclResult_t result =
          register_buffer("ncclCommWindowRegister", comm, buff, size, &registration);
      result != ncclSuccess) {
    return result;
  }
  const ncclResult_t result = guarded("ncclCommWindowRegister", [&] {
    Windows& known = windows();
    const std::lock_guard lock(known.mutex);
    const auto handle = reinterpret_cast<ncclWindow_t>(++known.last);
    known.all[handle] = {.address = buff, .registration = registration};
    *win = handle;
    return ncclSuccess;
  });
  if (result != ncclSuccess) {
    static_cast<void>(whorlCommDeregister(inner(comm), registration));
  }
  return result;
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win)) {
  if (win == nullptr) return ncclSuccess;
  return guarded("ncclCommWindowDeregister", [&] {
    Windows& known = windows();
    const std::lock_guard lock(known.mutex);
    const auto found = known.all.find(win);
    if (found == known.all.end()) {
      return fail(ncclInvalidArgument, "ncclCommWindowDeregister: win is not a window");
    }
    void* const registration = found->second.registration;
    const ncclResult_t result = registration == nullptr
                                    ? ncclSuccess
                                    : report(whorlCommDeregister(inner(comm), registration));
    if (result == ncclSuccess) known.all.erase(found);
    return result;
  });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclWinGetUserPtr,
                  (ncclComm_t comm, ncclWindow_t win, void** outUserPtr)) {
  int rank = 0;
  if (const whorlResult_t result = whorlCommUserRank(inner(comm), &rank); result != whorlSuccess) {
    return report(result);
  }
  if (outUserPtr == nullptr)
    return fail(ncclInvalidArgument, "ncclWinGetUserPtr: outUserPtr is NULL");
  return guarded("ncclWinGetUserPtr", [&] {
    Windows& known = windows();
    const std::lock_guard lock(known.mutex);
    const auto found = known.all.find(win);
    if (found == known.all.end()) {
      return fail(ncclInvalidArgument, "ncclWinGetUserPtr: win is not a window");
    }
    *outUserPtr = found->second.address;
    return ncclSuccess;
  });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommMemStats,
                  (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value)) {
  return report(whorlCommMemStats(inner(comm), static_cast<whorlCommMemStat_t>(stat), value));
}
