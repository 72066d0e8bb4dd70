#include "gpu/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstring>

namespace whorl::gpu {
namespace {

/// The driver, or why there is none. Allocates nothing, so that it can be loaded anywhere, and is
/// trivially destroyed, because streams may outlive main().
struct Loaded {
  Driver functions;
  std::array<char, 256> no_library{}; ///< message of the loader; empty: the library is there
  const char* missing = nullptr;      ///< name of the first function that it lacks; null: none

  Loaded() noexcept {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const why = dlerror();
      std::strncpy(no_library.data(), why != nullptr ? why : "unknown error",
                   no_library.size() - 1);
      return;
    }
#define WHORL_CUDA_TEXT_(name) #name
#define WHORL_CUDA_TEXT(name) WHORL_CUDA_TEXT_(name)
#define WHORL_CUDA_FIND(name) find(library, WHORL_CUDA_TEXT(name), functions.name);
    WHORL_CUDA_FUNCTIONS(WHORL_CUDA_FIND)
#undef WHORL_CUDA_FIND
    find(library, "cuStreamGetCaptureInfo_v2", functions.cuStreamGetCaptureInfo_v2);
#define WHORL_CUDA_OPTIONAL(name) find_optional(library, #name, functions.name)
    WHORL_CUDA_OPTIONAL(cuCtxGetId);
    WHORL_CUDA_OPTIONAL(cuGraphRetainUserObject);
    WHORL_CUDA_OPTIONAL(cuUserObjectCreate);
    WHORL_CUDA_OPTIONAL(cuUserObjectRelease);
#undef WHORL_CUDA_OPTIONAL
  }

  bool usable() const noexcept { return no_library[0] == '\0' && missing == nullptr; }

  template <class Function>
  static void find_optional(void* library, const char* name, Function& function) noexcept {
    function = reinterpret_cast<Function>(dlsym(library, name));
  }

  template <class Function>
  void find(void* library, const char* name, Function& function) noexcept {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr && missing == nullptr) missing = name;
  }
};

const Loaded& loaded() noexcept {
  static const Loaded instance; // the library is never unloaded
  return instance;
}

} // namespace

const Driver* driver() noexcept {
  const Loaded& all = loaded();
  return all.usable() ? &all.functions : nullptr;
}

std::string driver_error() {
  const Loaded& all = loaded();
  if (all.usable()) return {};
  if (all.missing == nullptr) {
    return fmt::format("there is no CUDA driver: {}; install NVIDIA's driver, or use host memory",
                       all.no_library.data());
  }
  return fmt::format(
      "the CUDA driver is too old: libcuda.so.1 has no {}; whorl needs that of CUDA 12 or newer",
      all.missing);
}

Status check(CUresult result, std::string_view what) {
  if (result == CUDA_SUCCESS) return {};
  const char* name = nullptr;
  const char* words = nullptr;
  if (driver()->cuGetErrorName(result, &name) != CUDA_SUCCESS) name = "an unknown error";
  if (driver()->cuGetErrorString(result, &words) != CUDA_SUCCESS) words = "no description";
  return Status::error(Code::kCudaError, fmt::format("{} failed: {} ({})", what, words, name));
}

std::uint64_t id_of(CUcontext context) noexcept {
  unsigned long long id = 0;
  if (driver()->cuCtxGetId != nullptr && driver()->cuCtxGetId(context, &id) == CUDA_SUCCESS) {
    return id;
  }
  return reinterpret_cast<std::uintptr_t>(context);
}

bool is_same_context(CUcontext context, std::uint64_t id) noexcept {
  return id_of(context) == id; // the handle, if the context has been destroyed
}

bool has_mps(CUdevice device) noexcept {
  // CU_DEVICE_ATTRIBUTE_MPS_ENABLED, which the headers of CUDA 12.3 lack
  constexpr auto kMpsEnabled = static_cast<CUdevice_attribute>(133);
  int enabled = 0;
  return driver()->cuDeviceGetAttribute(&enabled, kMpsEnabled, device) == CUDA_SUCCESS &&
         enabled != 0;
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

namespace {
thread_local int guards = 0; ///< number of CaptureModeGuards of the thread
} // namespace

CaptureModeGuard::CaptureModeGuard() noexcept {
  if (guards++ == 0) static_cast<void>(driver()->cuThreadExchangeStreamCaptureMode(&mode_));
}

CaptureModeGuard::~CaptureModeGuard() {
  if (--guards == 0) static_cast<void>(driver()->cuThreadExchangeStreamCaptureMode(&mode_));
}

ContextGuard::ContextGuard(CUcontext context) noexcept {
  CUcontext current = nullptr;
  if (driver()->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context) return;
  pushed_ = driver()->cuCtxPushCurrent(context) == CUDA_SUCCESS;
}

ContextGuard::~ContextGuard() {
  CUcontext popped = nullptr;
  if (pushed_) static_cast<void>(driver()->cuCtxPopCurrent(&popped));
}

} // namespace whorl::gpu
