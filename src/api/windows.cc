// Windows: registrations with an address that the program can query.
#include <cstdint>
#include <map>
#include <mutex>

#include "api/support.h"

using namespace whorl;       // NOLINT: this file is the bridge between the two worlds
using namespace whorl::capi; // NOLINT

namespace {

struct Window {
  void* address;
  void* registration;
};

struct Windows {
  std::mutex mutex;
  std::map<whorlWindow_t, Window> all;
  std::uintptr_t last = 0; ///< last handle; handles are numbers that are never reused
};
Windows& windows() {
  static Windows& instance = *new Windows; // never destroyed: threads outlive main()
  return instance;
}

/// Calls `use` with the window of a handle, while no other thread changes the windows.
template <class Use>
Status with_window(const char* function, whorlWindow_t win, Use&& use) {
  Windows& known = windows();
  const std::lock_guard lock(known.mutex);
  const auto found = known.all.find(win);
  if (found == known.all.end()) return invalid(function, "win is not a window");
  return use(known.all, found);
}

} // namespace

extern "C" {

whorlResult_t whorlCommWindowRegister(whorlComm_t comm, void* buff, size_t size, whorlWindow_t* win,
                                      int winFlags) {
  constexpr const char* kName = "whorlCommWindowRegister";
  return guarded(kName, comm, [&]() -> Status {
    if (win == nullptr) return invalid(kName, "win is NULL");
    *win = nullptr;
    if ((winFlags & ~WHORL_WIN_COLL_SYMMETRIC) != 0) {
      return invalid(kName, fmt::format("winFlags is {}; use WHORL_WIN_DEFAULT (0) or "
                                        "WHORL_WIN_COLL_SYMMETRIC (1)",
                                        winFlags));
    }
    void* registration = nullptr;
    WHORL_TRY(register_memory(kName, comm, buff, size, &registration));
    const Status kept = without_exceptions([&]() -> Status {
      Windows& known = windows();
      const std::lock_guard lock(known.mutex);
      const auto handle = reinterpret_cast<whorlWindow_t>(++known.last);
      known.all[handle] = {.address = buff, .registration = registration};
      *win = handle;
      return {};
    });
    if (!kept.ok() && registration != nullptr) {
      static_cast<void>(deregister_memory(kName, comm, registration));
    }
    return kept;
  });
}

whorlResult_t whorlCommWindowDeregister(whorlComm_t comm, whorlWindow_t win) {
  constexpr const char* kName = "whorlCommWindowDeregister";
  return guarded(kName, comm, [&]() -> Status {
    if (win == nullptr) return {};
    return with_window(kName, win, [&](auto& all, auto found) -> Status {
      void* const registration = found->second.registration;
      if (registration != nullptr) WHORL_TRY(deregister_memory(kName, comm, registration));
      all.erase(found);
      return {};
    });
  });
}

whorlResult_t whorlWinGetUserPtr(whorlComm_t comm, whorlWindow_t win, void** outUserPtr) {
  constexpr const char* kName = "whorlWinGetUserPtr";
  return guarded(kName, comm, [&]() -> Status {
    WHORL_TRY(check_created(kName, comm));
    if (outUserPtr == nullptr) return invalid(kName, "outUserPtr is NULL");
    return with_window(kName, win, [&](auto&, auto found) -> Status {
      *outUserPtr = found->second.address;
      return {};
    });
  });
}

} // extern "C"
