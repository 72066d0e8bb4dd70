#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/status.h"
#include "gpu/driver.h"

namespace whorl::gpu {

/// Loads a binary that embed.py has embedded into the current context. The error says which driver
/// it needs; `what` names the kernels in the binary.
Result<CUmodule> load_module(const char* fatbin, std::string_view what);

/// Returns the T of a context, which must be current: kernels that T::load() finds. Loads it at the
/// first call and keeps it, or the error, for the life of the process. Any thread.
template <class T>
Result<T*> loaded(CUcontext context) {
  struct One {
    T kernels;
    Status status;
  };
  static std::mutex mutex;
  static auto& all = *new std::map<std::uint64_t, std::unique_ptr<One>>; // never unloaded
  const CaptureModeGuard relaxed;
  const std::lock_guard lock(mutex);
  std::unique_ptr<One>& known = all[id_of(context)];
  if (known == nullptr) {
    known = std::make_unique<One>();
    known->status = known->kernels.load();
  }
  if (!known->status.ok()) return known->status;
  return &known->kernels;
}

} // namespace whorl::gpu
