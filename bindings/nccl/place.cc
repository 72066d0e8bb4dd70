#include "bindings/nccl/place.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <initializer_list>
#include <mutex>
#include <type_traits>

#include "bindings/nccl/support.h"

namespace whorl_nccl {
namespace {

// Constant of the CUDA driver's interface.
constexpr int kCudaSuccess = 0;

using StreamSynchronize = int (*)(cudaStream_t stream);
using ContextGetCurrent = int (*)(void** context);

struct Driver {
  StreamSynchronize stream_synchronize = nullptr;
  ContextGetCurrent context_get_current = nullptr;
};

Driver the_driver;                   // written once, before `loaded`
std::atomic<const Driver*> loaded{}; // release in find_driver(), acquire by all readers

const Driver* driver() noexcept { return loaded.load(std::memory_order_acquire); }

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

/// Returns the driver, or null if this process has not loaded it. A library that is not loaded is
/// searched for in the file system, so only after others have been loaded.
const Driver* find_driver() noexcept {
  static constinit std::mutex mutex; // guard of the_driver, and of looked_at for writing
  static constinit std::atomic<unsigned long long> looked_at{0};
  if (const Driver* const found = driver()) return found;
  const unsigned long long loads = count_loads();
  if (loads == looked_at.load(std::memory_order_relaxed)) return nullptr;
  const std::lock_guard lock(mutex);
  if (const Driver* const found = driver()) return found;
  if (void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD)) {
    const auto symbol = [&](const char* name, auto& out) {
      out = reinterpret_cast<std::remove_reference_t<decltype(out)>>(dlsym(library, name));
      return out != nullptr;
    };
    if (symbol("cuStreamSynchronize", the_driver.stream_synchronize) &&
        symbol("cuCtxGetCurrent", the_driver.context_get_current)) {
      loaded.store(&the_driver, std::memory_order_release); // pairs with acquire in driver()
      return &the_driver;
    }
  }
  looked_at.store(loads, std::memory_order_relaxed);
  return nullptr;
}

} // namespace

Place place_of(const void* pointer) noexcept {
  whorlMemoryKind_t kind = whorlMemoryHost;
  static_cast<void>(whorlPointerKind(pointer, &kind, nullptr)); // never fails
  return kind == whorlMemoryDevice ? Place::kDevice : Place::kHost;
}

ncclResult_t check_device(const char* function, const char* argument) noexcept {
  int supported = 0;
  const whorlResult_t asked = whorlDeviceSupport(&supported);
  if (asked == whorlSuccess && supported != 0) return ncclSuccess;
  return fail_in_group(ncclInvalidArgument, function, ": ", argument,
                       " is memory of a CUDA device, and whorl can move host memory only: ",
                       whorlGetLastError(nullptr));
}

bool has_context() noexcept {
  const Driver* const cuda = find_driver();
  void* context = nullptr;
  int supported = 0;
  return cuda != nullptr && cuda->context_get_current(&context) == kCudaSuccess &&
         context != nullptr && whorlDeviceSupport(&supported) == whorlSuccess && supported != 0;
}

ncclResult_t prepare(const char* function, const void* sendbuff, const void* recvbuff, size_t count,
                     cudaStream_t stream, void** queue) noexcept {
  *queue = nullptr;
  const Driver* const cuda = find_driver();
  if (cuda == nullptr) return ncclSuccess;
  if (count == 0 && has_context()) { // for any pointers: the call may be part of a graph
    *queue = inner(stream);
    return ncclSuccess;
  }
  for (const void* const pointer : {sendbuff, recvbuff}) {
    if (place_of(pointer) == Place::kHost) continue;
    if (const ncclResult_t usable =
            check_device(function, pointer == sendbuff ? "sendbuff" : "recvbuff");
        usable != ncclSuccess) {
      return usable;
    }
    *queue = inner(stream);
    return ncclSuccess;
  }
  void* context = nullptr;
  if (cuda->context_get_current(&context) != kCudaSuccess || context == nullptr) {
    return ncclSuccess; // without a context no work can have been queued
  }
  if (const int code = cuda->stream_synchronize(stream); code != kCudaSuccess) {
    return fail_in_group(ncclUnhandledCudaError, function,
                         ": cuStreamSynchronize failed with error ", code,
                         "; an operation on host memory first waits for its stream, so it "
                         "cannot be captured in a graph");
  }
  return ncclSuccess;
}

} // namespace whorl_nccl
