// Contexts and devices of the pretended driver, see contexts.h. FAKE_CUDA_DEVICES sets the number
// of devices.
#include "tests/support/fake_cuda/contexts.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/device.h"
#include "tests/support/fake_cuda/fault.h"
#include "tests/support/fake_cuda/lock.h"

#pragma GCC visibility push(default)

namespace fake_cuda {
namespace {

struct Contexts {
  struct Primary {
    int references = 0;
    unsigned long long id = 0;
  };
  std::mutex mutex;
  std::array<Primary, kMaxDevices> primary;
  unsigned long long ids_made = 0;
  std::set<std::pair<unsigned long long, CUfunction>> functions, loaded; ///< pairs with context ids
};
Contexts& contexts() {
  static Contexts& instance = *new Contexts;
  return instance;
}

std::atomic<bool> initialised{false};
std::atomic<long> stale_calls{0};
std::atomic<bool> peers[kMaxDevices][kMaxDevices];
thread_local std::vector<CUcontext> context_stack;

/// Resets the primary context of a device. The caller holds the mutex.
void reset(int device) {
  contexts().primary[static_cast<std::size_t>(device)].id = 0;
  for (int other = 0; other < kMaxDevices; ++other) {
    peers[device][other] = false;
    peers[other][device] = false;
  }
  Memory::all().forget(device);
  forget_imports();
}

bool exists(CUdevice device) { return device >= 0 && device < devices(); }

} // namespace

int devices() {
  const char* const text = std::getenv("FAKE_CUDA_DEVICES");
  return text == nullptr ? 1 : std::atoi(text);
}

bool is_initialised() { return initialised; }
void count_stale_call() { ++stale_calls; }

CUcontext context_of(int device) {
  static char handles[kMaxDevices];
  return reinterpret_cast<CUcontext>(&handles[device]);
}

int device_of(CUcontext context) {
  int device = 0;
  while (context_of(device) != context) ++device;
  return device;
}

CUcontext current_context() { return context_stack.empty() ? nullptr : context_stack.back(); }

int current_device() { return current_context() == nullptr ? 0 : device_of(current_context()); }

bool reaches(int device, int other) { return device == other || peers[device][other]; }

unsigned long long id_of(CUcontext context) {
  if (context == nullptr) return 0;
  const std::lock_guard lock(contexts().mutex);
  return contexts().primary[static_cast<std::size_t>(device_of(context))].id;
}

bool enable_access(int device, int other) { return peers[device][other].exchange(true); }

void add_function(CUfunction function) {
  const unsigned long long id = id_of(current_context());
  const std::lock_guard lock(contexts().mutex);
  contexts().functions.insert({id, function});
}

bool load_function(CUfunction function) {
  const unsigned long long id = id_of(current_context());
  const std::lock_guard lock(contexts().mutex);
  return contexts().loaded.insert({id, function}).second;
}

bool has_function(CUfunction function) {
  const unsigned long long id = id_of(current_context());
  const std::lock_guard lock(contexts().mutex);
  return contexts().functions.count({id, function}) > 0;
}

} // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

long fake_cuda_stale_calls() { return stale_calls; }

CUresult cuInit(unsigned) {
  if (devices() <= 0) return CUDA_ERROR_NO_DEVICE;
  initialised = true;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (!exists(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const DriverLock inside;
  if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(contexts().mutex);
  Contexts::Primary& primary = contexts().primary[static_cast<std::size_t>(device)];
  ++primary.references;
  if (primary.id == 0) primary.id = ++contexts().ids_made;
  *context = context_of(device);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  const DriverLock inside;
  if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(contexts().mutex);
  Contexts::Primary& primary = contexts().primary[static_cast<std::size_t>(device)];
  if (primary.references == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary.references == 0) reset(device);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  const DriverLock inside;
  if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(contexts().mutex);
  reset(device);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = id_of(context_of(device)) != 0 ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  const DriverLock inside;
  *id = id_of(context != nullptr ? context : current_context());
  return *id != 0 ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
  *context = current_context();
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = device_of(current_context());
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  context_stack.push_back(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext* context) {
  if (context_stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = context_stack.back();
  context_stack.pop_back();
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  if (!context_stack.empty()) context_stack.pop_back();
  if (context != nullptr) context_stack.push_back(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() {
  { const DriverLock inside; }
  if (lost()) return kFault;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  synchronize_all();
  return lost() ? kFault : CUDA_SUCCESS;
}
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned) {
  const DriverLock inside;
  if (peer == nullptr || current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const int from = current_device(), to = device_of(peer);
  if (from == to || std::getenv("FAKE_CUDA_NO_PEERS") != nullptr) {
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  }
  return enable_access(from, to) ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

} // extern "C"
