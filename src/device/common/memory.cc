#include "device/common/memory.h"

#include <fmt/core.h>

#include <map>
#include <mutex>

#include "gpu/driver.h"
#include "gpu/memory_kind.h"

namespace whorl {
namespace {

using gpu::driver;

/// Allocations of device_alloc() and their contexts.
struct Allocations {
  std::mutex mutex;
  std::map<const void*, CUcontext> all;
};
Allocations& allocations() noexcept {
  // Never destroyed, because memory may outlive main(); allocates nothing.
  static union Storage {
    Storage() noexcept : known() {}
    ~Storage() {}
    Allocations known;
  } storage;
  return storage.known;
}

} // namespace

int current_device() noexcept {
  CUdevice device = -1;
  if (driver() == nullptr || driver()->cuCtxGetDevice(&device) != CUDA_SUCCESS) return -1;
  return device;
}

Result<void*> device_alloc(std::size_t bytes) {
  if (driver() == nullptr) return Status::error(Code::kInvalidUsage, gpu::driver_error());
  CUcontext context = nullptr;
  if (driver()->cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) {
    return Status::error(Code::kInvalidUsage,
                         "the calling thread has no current CUDA context; choose a device first, "
                         "with cudaSetDevice and a call that uses it, or cuCtxSetCurrent");
  }
  CUdeviceptr address = 0;
  const gpu::CaptureModeGuard relaxed; // the memory does not become part of a graph
  const CUresult result = driver()->cuMemAlloc(&address, bytes);
  if (Status status = gpu::check(result, fmt::format("cuMemAlloc of {} bytes", bytes));
      !status.ok()) {
    return status;
  }
  auto* const pointer = reinterpret_cast<void*>(address);
  Allocations& known = allocations();
  const std::lock_guard lock(known.mutex);
  known.all[pointer] = context;
  return pointer;
}

bool is_device_alloc(const void* pointer) noexcept {
  Allocations& known = allocations();
  const std::lock_guard lock(known.mutex);
  return known.all.count(pointer) > 0;
}

Status device_free(void* pointer) {
  CUcontext context = nullptr;
  {
    Allocations& known = allocations();
    const std::lock_guard lock(known.mutex);
    const auto found = known.all.find(pointer);
    if (found == known.all.end()) {
      return Status::error(Code::kInvalidArgument,
                           fmt::format("{} is not memory of whorlMemAllocDevice that is still "
                                       "allocated",
                                       pointer));
    }
    context = found->second;
    known.all.erase(found); // before the driver can return the address again
  }
  const gpu::ContextGuard guard(context);
  const CUresult result = driver()->cuMemFree(reinterpret_cast<CUdeviceptr>(pointer));
  if (result != CUDA_SUCCESS) {
    Allocations& known = allocations();
    const std::lock_guard lock(known.mutex);
    known.all[pointer] = context; // still allocated
  }
  return gpu::check(result, "cuMemFree");
}

} // namespace whorl
