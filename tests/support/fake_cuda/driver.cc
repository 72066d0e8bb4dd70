// Functions of the driver for devices and errors.
#include <cstdlib>
#include <cstring>

#include "tests/support/fake_cuda/contexts.h"

using fake_cuda::devices;

namespace {

int setting(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

} // namespace

#pragma GCC visibility push(default)
extern "C" {
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

CUresult cuDeviceGetCount(int* count) {
  if (!fake_cuda::is_initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  *count = devices();
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = setting("FAKE_CUDA_PROCESSORS", 4);
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
      *value = 1;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
      *value = setting("FAKE_CUDA_MPS", 0);
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
  // FAKE_CUDA_FIRST_DEVICE numbers the first visible device, like CUDA_VISIBLE_DEVICES.
  uuid->bytes[0] = static_cast<char>(device + setting("FAKE_CUDA_FIRST_DEVICE", 0) + 1);
  return CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice other) {
  *can = device != other && std::getenv("FAKE_CUDA_NO_PEERS") == nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}
} // extern "C"
