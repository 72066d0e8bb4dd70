// The functions of the driver for devices and contexts.
#include "tests/support/fake_cuda/driver.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int kMaxDevices = 16;

std::atomic<bool> started{false};
std::atomic<bool> peers[kMaxDevices][kMaxDevices];
char contexts[kMaxDevices];
thread_local std::vector<CUcontext> context_stack;

int number(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

} // namespace

namespace fake_cuda {

int devices() { return number("FAKE_CUDA_DEVICES", 1); }
bool initialised() { return started; }
CUcontext context_of(int device) { return reinterpret_cast<CUcontext>(&contexts[device]); }
int device_of(CUcontext context) {
  return static_cast<int>(reinterpret_cast<char*>(context) - contexts);
}
CUcontext current_context() { return context_stack.empty() ? nullptr : context_stack.back(); }
int current_device() { return current_context() == nullptr ? 0 : device_of(current_context()); }
bool reaches(int device, int other) { return device == other || peers[device][other]; }

} // namespace fake_cuda

using fake_cuda::context_of;
using fake_cuda::current_context;
using fake_cuda::device_of;
using fake_cuda::devices;

#pragma GCC visibility push(default)
extern "C" {
CUresult cuInit(unsigned) {
  if (devices() <= 0) return CUDA_ERROR_NO_DEVICE;
  started = true;
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char** text) {
  switch (error) {
    case CUDA_SUCCESS:
      *text = "CUDA_SUCCESS";
      return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_VALUE:
      *text = "CUDA_ERROR_INVALID_VALUE";
      return CUDA_SUCCESS;
    case CUDA_ERROR_NO_DEVICE:
      *text = "CUDA_ERROR_NO_DEVICE";
      return CUDA_SUCCESS;
    case CUDA_ERROR_ILLEGAL_ADDRESS:
      *text = "CUDA_ERROR_ILLEGAL_ADDRESS";
      return CUDA_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY:
      *text = "CUDA_ERROR_OUT_OF_MEMORY";
      return CUDA_SUCCESS;
    default:
      *text = "CUDA_ERROR_UNKNOWN";
      return CUDA_SUCCESS;
  }
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "an error of the pretended device";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (ordinal >= devices()) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  if (!started) return CUDA_ERROR_NOT_INITIALIZED;
  *count = devices();
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 4;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
      *value = 1;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      return CUDA_SUCCESS;
    default:
      *value = 0;
      return CUDA_SUCCESS;
  }
}
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  std::strncpy(name, "pretended device", static_cast<std::size_t>(size));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  std::memset(uuid, 0, sizeof *uuid);
  uuid->bytes[0] = static_cast<char>(device + 1);
  return CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice other) {
  *can = device != other && std::getenv("FAKE_CUDA_NO_PEERS") == nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = context_of(device);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = started ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  if (!started) return CUDA_ERROR_NOT_INITIALIZED;
  *context = current_context();
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = fake_cuda::current_device();
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
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
  context_stack.push_back(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() {
  if (fake_cuda::Stream::recording != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  fake_cuda::Stream::synchronize_all();
  return CUDA_SUCCESS;
}
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned) {
  const int from = fake_cuda::current_device(), to = device_of(peer);
  if (from == to || std::getenv("FAKE_CUDA_NO_PEERS") != nullptr) {
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  }
  return peers[from][to].exchange(true) ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}
} // extern "C"
