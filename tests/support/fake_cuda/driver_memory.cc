// Functions of the driver for memory. fake_cuda_allow_copies(n) makes all copies after the next n
// fail; −1: none.
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/support/fake_cuda/contexts.h"
#include "tests/support/fake_cuda/device.h"
#include "tests/support/fake_cuda/fault.h"
#include "tests/support/fake_cuda/lock.h"

namespace {

using fake_cuda::context_of;
using fake_cuda::current_context;
using fake_cuda::is_initialised;
using fake_cuda::kFault;
using fake_cuda::lost;
using fake_cuda::Memory;
using fake_cuda::refused;
using fake_cuda::stream_of;
using fake_cuda::synchronize_implicitly;
using fake_cuda::unsafe_call_is_refused;

std::atomic<long> copies_allowed{-1};

bool copy_is_refused() {
  long left = copies_allowed;
  while (left > 0 && !copies_allowed.compare_exchange_weak(left, left - 1)) continue;
  return left == 0;
}

/// Returns whether the driver does not know the memory, so that a copy waits for its stream.
bool is_pageable(CUdeviceptr address) {
  return Memory::all().find(static_cast<std::uintptr_t>(address)).bytes == 0;
}

/// Largest copy from pageable memory that returns when its bytes have been read.
constexpr std::size_t kStagedBytes = 64 * 1024;

/// Copies from pageable memory: reads the bytes, and has the default stream write them later.
CUresult copy_by_staging(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  using namespace std::chrono_literals;
  const fake_cuda::DriverLock inside(static_cast<CUstream>(nullptr));
  if (const CUresult bad = refused(nullptr); bad != CUDA_SUCCESS) return bad;
  if (copy_is_refused()) return CUDA_ERROR_INVALID_VALUE;
  const auto* const data = reinterpret_cast<const std::byte*>(from);
  stream_of(nullptr).push([to, staged = std::vector<std::byte>(data, data + bytes)] {
    std::this_thread::sleep_for(300us);
    std::memcpy(Memory::all().reach(to), staged.data(), staged.size());
  });
  return CUDA_SUCCESS;
}

} // namespace

#pragma GCC visibility push(default)
extern "C" {
CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute* attributes, void** values,
                                CUdeviceptr pointer) {
  const fake_cuda::DriverLock inside;
  if (lost()) return kFault;
  if (!is_initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  const Memory::Range range = Memory::all().find(pointer);
  for (unsigned i = 0; i < n; ++i) {
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned*>(values[i]) = range.type;
        break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *static_cast<unsigned*>(values[i]) = range.managed ? 1 : 0;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(values[i]) = range.bytes > 0 ? range.device : -2;
        break;
      case CU_POINTER_ATTRIBUTE_CONTEXT:
        *static_cast<CUcontext*>(values[i]) =
            range.bytes > 0 && !range.pool ? context_of(range.device) : nullptr;
        break;
      case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *static_cast<unsigned long long*>(values[i]) = range.id;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr*>(values[i]) =
            range.reservation > 0 ? range.reserved : range.begin;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<std::size_t*>(values[i]) =
            range.reservation > 0 ? range.reservation : range.bytes;
        break;
      case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *static_cast<bool*>(values[i]) = range.shareable;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  if (!is_initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (Memory::all().find(pointer).bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  return cuPointerGetAttributes(1, &attribute, &value, pointer);
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, std::size_t* size, CUdeviceptr pointer) {
  const fake_cuda::DriverLock inside;
  const Memory::Range range = Memory::all().find(pointer);
  if (range.bytes == 0) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = range.begin;
  if (size != nullptr) *size = range.bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* pointer, std::size_t bytes) {
  const fake_cuda::DriverLock inside;
  fake_cuda::count_call_that_may_wait();
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return Memory::all().allocate_device(bytes, false, fake_cuda::current_device(), pointer);
}
CUresult cuMemAllocAsync(CUdeviceptr* pointer, std::size_t bytes, CUstream) {
  const fake_cuda::DriverLock inside;
  if (lost()) return kFault;
  return Memory::all().allocate_device(bytes, true, fake_cuda::current_device(), pointer);
}
CUresult cuMemFree(CUdeviceptr pointer) {
  const fake_cuda::DriverLock inside;
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  synchronize_implicitly();
  const CUresult freed = Memory::all().free_device(pointer);
  if (freed != CUDA_SUCCESS) fake_cuda::count_stale_call(); // the reset has freed it
  return freed;
}
CUresult cuMemAllocManaged(CUdeviceptr* pointer, std::size_t bytes, unsigned) {
  const fake_cuda::DriverLock inside;
  return Memory::all().allocate_host(bytes, true, reinterpret_cast<void**>(pointer));
}
CUresult cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  const fake_cuda::DriverLock inside;
  fake_cuda::count_call_that_may_wait();
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return Memory::all().allocate_host(bytes, false, pointer);
}
CUresult cuMemFreeHost(void* pointer) { return Memory::all().free_host(pointer); }
CUresult cuMemHostRegister(void* pointer, std::size_t bytes, unsigned) {
  const fake_cuda::DriverLock inside;
  fake_cuda::count_call_that_may_wait();
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return Memory::all().add_host(pointer, bytes);
}
CUresult cuMemHostUnregister(void* pointer) {
  const fake_cuda::DriverLock inside;
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  synchronize_implicitly();
  return Memory::all().remove_host(pointer);
}
CUresult cuMemHostGetDevicePointer(CUdeviceptr* device, void* host, unsigned) {
  const fake_cuda::DriverLock inside;
  if (Memory::all().find(reinterpret_cast<std::uintptr_t>(host)).bytes == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *device = reinterpret_cast<CUdeviceptr>(host);
  return CUDA_SUCCESS;
}

void fake_cuda_allow_copies(long n) { copies_allowed = n; }
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  const fake_cuda::DriverLock inside(stream);
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  if (copy_is_refused()) return CUDA_ERROR_INVALID_VALUE;
  stream_of(stream).push(
      [=] { std::memcpy(Memory::all().reach(to), Memory::all().reach(from), bytes); });
  if (is_pageable(to) || is_pageable(from)) fake_cuda::synchronize_implicitly(stream_of(stream));
  return CUDA_SUCCESS;
}
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  if (is_pageable(from) && !is_pageable(to) && bytes <= kStagedBytes) {
    return copy_by_staging(to, from, bytes);
  }
  if (const CUresult bad = cuMemcpyAsync(to, from, bytes, nullptr); bad != CUDA_SUCCESS) return bad;
  stream_of(nullptr).synchronize();
  return lost() ? kFault : CUDA_SUCCESS;
}
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* copy, CUstream stream) {
  const fake_cuda::DriverLock inside(stream);
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  stream_of(stream).push([c = *copy] {
    const auto address = [](CUmemorytype type, CUdeviceptr device, const void* host) {
      return Memory::all().reach(type == CU_MEMORYTYPE_HOST ? reinterpret_cast<std::uintptr_t>(host)
                                                            : static_cast<std::uintptr_t>(device));
    };
    const std::byte* const from = address(c.srcMemoryType, c.srcDevice, c.srcHost);
    std::byte* const to = address(c.dstMemoryType, c.dstDevice, c.dstHost);
    for (std::size_t y = 0; y < c.Height; ++y) {
      std::memcpy(to + (c.dstY + y) * c.dstPitch + c.dstXInBytes,
                  from + (c.srcY + y) * c.srcPitch + c.srcXInBytes, c.WidthInBytes);
    }
  });
  return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
  const fake_cuda::DriverLock inside(stream);
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  stream_of(stream).push([=] { std::memset(Memory::all().reach(to), value, bytes); });
  return CUDA_SUCCESS;
}

} // extern "C"
