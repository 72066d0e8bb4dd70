#include "perf/common/device.h"

#include <dlfcn.h>

#include <string>

#include "perf/common/api.h"

namespace perf {

const Device& Device::driver() {
  static const Device instance;
  return instance;
}

Device::Device() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    throw Failure(std::string("--alloc device needs a CUDA driver: ") + dlerror());
  }
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) throw Failure(std::string("The CUDA driver has no ") + name + ".");
  };
  find("cuInit", init_);
  find("cuGetErrorName", error_name_);
  find("cuDeviceGetCount", count_);
  find("cuDeviceGet", get_);
  find("cuDeviceGetName", name_);
  find("cuDevicePrimaryCtxRetain", retain_);
  find("cuCtxSetCurrent", set_current_);
  find("cuMemAlloc_v2", allocate_);
  find("cuMemFree_v2", free_);
  find("cuMemcpy", copy_);
  find("cuStreamCreate", stream_create_);
  find("cuStreamSynchronize", stream_synchronize_);
  find("cuStreamDestroy_v2", stream_destroy_);
  check(init_(0), "cuInit");
}

void Device::check(int result, const char* call) const {
  if (result == 0) return;
  const char* name = nullptr;
  if (error_name_(result, &name) != 0 || name == nullptr) name = "an unknown error";
  throw Failure(std::string(call) + " failed: " + name + ".");
}

int Device::attach(int index) const {
  int count = 0, device = 0;
  check(count_(&count), "cuDeviceGetCount");
  if (count == 0) throw Failure("--alloc device: the CUDA driver knows no device.");
  void* context = nullptr;
  check(get_(&device, index % count), "cuDeviceGet");
  check(retain_(&context, device), "cuDevicePrimaryCtxRetain");
  check(set_current_(context), "cuCtxSetCurrent");
  return index % count;
}

std::string Device::name(int index) const {
  int device = 0;
  char text[256] = {};
  check(get_(&device, index), "cuDeviceGet");
  check(name_(text, sizeof text - 1, device), "cuDeviceGetName");
  return text;
}

std::byte* Device::allocate(std::size_t bytes) const {
  Address address = 0;
  check(allocate_(&address, bytes), "cuMemAlloc");
  return reinterpret_cast<std::byte*>(address);
}

void Device::free(std::byte* memory) const noexcept {
  (void)free_(reinterpret_cast<Address>(memory));
}

void Device::copy(void* to, const void* from, std::size_t bytes) const {
  if (bytes == 0) return;
  check(copy_(reinterpret_cast<Address>(to), reinterpret_cast<Address>(from), bytes), "cuMemcpy");
  // A copy of up to 64 KiB from pageable memory returns before its bytes are on the device.
  synchronize(nullptr);
}

void* Device::make_stream() const {
  constexpr unsigned kNonBlocking = 1;
  void* stream = nullptr;
  check(stream_create_(&stream, kNonBlocking), "cuStreamCreate");
  return stream;
}

void Device::synchronize(void* stream) const {
  check(stream_synchronize_(stream), "cuStreamSynchronize");
}

void Device::destroy(void* stream) const noexcept { (void)stream_destroy_(stream); }

} // namespace perf
