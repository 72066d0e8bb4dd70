// The functions of the driver, see device.h.
// fake_cuda_allow_copies(n) lets all copies after the next n fail; −1: none.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gpu/work.h"
#include "tests/support/fake_cuda/contexts.h"
#include "tests/support/fake_cuda/device.h"
#include "tests/support/fake_cuda/fault.h"
#include "tests/support/host_kernels.h"

#pragma GCC visibility push(default)

namespace {

using fake_cuda::add_function;
using fake_cuda::context_of;
using fake_cuda::current_context;
using fake_cuda::devices;
using fake_cuda::has_function;
using fake_cuda::is_initialised;
using fake_cuda::kFault;
using fake_cuda::lost;
using fake_cuda::Memory;
using fake_cuda::refused;
using fake_cuda::stream_of;
using fake_cuda::synchronize_implicitly;
using fake_cuda::unsafe_call_is_refused;

/// The event of a handle. What is queued keeps it, as in the real driver.
const std::shared_ptr<fake_cuda::Event>& event_of(CUevent handle) {
  return *reinterpret_cast<std::shared_ptr<fake_cuda::Event>*>(handle);
}

std::atomic<long> copies_allowed{-1};

template <class Compare>
void wait_value(CUdeviceptr address, Compare reached) {
  const auto* const word = reinterpret_cast<std::uint32_t*>(Memory::all().reach(address));
  while (!lost() && !reached(__atomic_load_n(word, __ATOMIC_ACQUIRE))) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void write_value(CUdeviceptr address, std::uint32_t value) {
  __atomic_store_n(reinterpret_cast<std::uint32_t*>(Memory::all().reach(address)), value,
                   __ATOMIC_RELEASE);
}

} // namespace

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
    case CUDA_ERROR_OUT_OF_MEMORY:
      *text = "CUDA_ERROR_OUT_OF_MEMORY";
      return CUDA_SUCCESS;
    case CUDA_ERROR_ILLEGAL_ADDRESS:
      *text = "CUDA_ERROR_ILLEGAL_ADDRESS";
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
  *count = devices();
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 4;
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
CUresult cuDeviceCanAccessPeer(int* can, CUdevice, CUdevice) {
  *can = 1;
  return CUDA_SUCCESS;
}
CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute* attributes, void** values,
                                CUdeviceptr pointer) {
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
        *static_cast<CUdeviceptr*>(values[i]) = range.begin;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<std::size_t*>(values[i]) = range.bytes;
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
  const Memory::Range range = Memory::all().find(pointer);
  if (range.bytes == 0) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = range.begin;
  if (size != nullptr) *size = range.bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* pointer, std::size_t bytes) {
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return Memory::all().allocate_device(bytes, false, pointer);
}
CUresult cuMemAllocAsync(CUdeviceptr* pointer, std::size_t bytes, CUstream) {
  if (lost()) return kFault;
  return Memory::all().allocate_device(bytes, true, pointer);
}
CUresult cuMemFree(CUdeviceptr pointer) {
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  synchronize_implicitly();
  return Memory::all().free_device(pointer);
}
CUresult cuMemAllocManaged(CUdeviceptr* pointer, std::size_t bytes, unsigned) {
  return Memory::all().allocate_host(bytes, true, reinterpret_cast<void**>(pointer));
}
CUresult cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return Memory::all().allocate_host(bytes, false, pointer);
}
CUresult cuMemFreeHost(void* pointer) { return Memory::all().free_host(pointer); }
CUresult cuMemHostRegister(void* pointer, std::size_t bytes, unsigned) {
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return Memory::all().add_host(pointer, bytes);
}
CUresult cuMemHostUnregister(void* pointer) {
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  synchronize_implicitly();
  return Memory::all().remove_host(pointer);
}
CUresult cuMemHostGetDevicePointer(CUdeviceptr* device, void* host, unsigned) {
  if (Memory::all().find(reinterpret_cast<std::uintptr_t>(host)).bytes == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *device = reinterpret_cast<CUdeviceptr>(host);
  return CUDA_SUCCESS;
}

void fake_cuda_allow_copies(long n) { copies_allowed = n; }
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  if (copies_allowed >= 0 && copies_allowed-- == 0) {
    copies_allowed = 0;
    return CUDA_ERROR_INVALID_VALUE;
  }
  stream_of(stream).push(
      [=] { std::memcpy(Memory::all().reach(to), Memory::all().reach(from), bytes); });
  return CUDA_SUCCESS;
}
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  cuMemcpyAsync(to, from, bytes, nullptr);
  stream_of(nullptr).synchronize();
  return CUDA_SUCCESS;
}
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* copy, CUstream stream) {
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
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  stream_of(stream).push([=] { std::memset(Memory::all().reach(to), value, bytes); });
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  if (lost()) return kFault;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  using Kind = fake_cuda::Stream::Kind;
  const Kind kind = (flags & CU_STREAM_NON_BLOCKING) != 0 ? Kind::kNonBlocking : Kind::kBlocking;
  *stream = reinterpret_cast<CUstream>(new fake_cuda::Stream(kind));
  return CUDA_SUCCESS;
}
CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int) {
  return cuStreamCreate(stream, flags);
}
CUresult cuStreamGetPriority(CUstream, int* priority) {
  *priority = 0;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
  delete reinterpret_cast<fake_cuda::Stream*>(stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  stream_of(stream).synchronize();
  return lost() ? kFault : CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream stream) {
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return stream_of(stream).idle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  *context = context_of(stream_of(stream).device());
  return CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  *status =
      stream_of(stream).capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
// A captured stream only says that it is one.
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  stream_of(stream).capturing = true;
  stream_of(stream).capture_mode = mode;
  fake_cuda::begin_capture(mode);
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  stream_of(stream).capturing = false;
  *graph = nullptr;
  const bool good = fake_cuda::end_capture(stream_of(stream).capture_mode);
  return good ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}
CUresult cuGraphDestroy(CUgraph) { return CUDA_SUCCESS; }
CUresult cuStreamGetId(CUstream stream, unsigned long long* number) {
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  *number = reinterpret_cast<std::uintptr_t>(stream) <= 1 ? 1 : stream_of(stream).number();
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned) {
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  const std::shared_ptr<fake_cuda::Event> event = event_of(handle);
  stream_of(stream).push([event, number = event->recorded()] { event->wait(number); });
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                             unsigned flags) {
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  stream_of(stream).push([=] {
    wait_value(address, [=](std::uint32_t now) {
      return (flags & 3) == CU_STREAM_WAIT_VALUE_EQ ? now == value
                                                    : static_cast<std::int32_t>(now - value) >= 0;
    });
  });
  return CUDA_SUCCESS;
}
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned) {
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  stream_of(stream).push([=] { write_value(address, value); });
  return CUDA_SUCCESS;
}
CUresult cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations,
                            unsigned) {
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  for (unsigned i = 0; i < count; ++i) {
    const CUstreamBatchMemOpParams& operation = operations[i];
    switch (operation.operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        cuStreamWaitValue32(stream, operation.waitValue.address, operation.waitValue.value,
                            operation.waitValue.flags);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        cuStreamWriteValue32(stream, operation.writeValue.address, operation.writeValue.value, 0);
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  if (lost()) return kFault;
  *event = reinterpret_cast<CUevent>(new std::shared_ptr(std::make_shared<fake_cuda::Event>()));
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent handle, CUstream stream) {
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  const std::shared_ptr<fake_cuda::Event> event = event_of(handle);
  stream_of(stream).push([event, number = event->record()] { event->reach(number); });
  return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent handle) {
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::shared_ptr<fake_cuda::Event> event = event_of(handle);
  return event->reached(event->recorded()) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventSynchronize(CUevent handle) {
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::shared_ptr<fake_cuda::Event> event = event_of(handle);
  event->wait(event->recorded());
  return lost() ? kFault : CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent handle) {
  delete reinterpret_cast<std::shared_ptr<fake_cuda::Event>*>(handle);
  return CUDA_SUCCESS;
}

// A module is any image; its functions are those that the host has.
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  if (lost()) return kFault;
  if (unsafe_call_is_refused()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (fake_cuda::modules_are_refused()) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  synchronize_implicitly();
  *module = reinterpret_cast<CUmodule>(const_cast<void*>(image));
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  const auto& kernels = whorl::testing::host_kernels();
  const auto found = kernels.find(std::string_view(name));
  if (found == kernels.end()) return CUDA_ERROR_NOT_FOUND;
  *function = reinterpret_cast<CUfunction>(found->second);
  add_function(*function);
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  *value = 64;
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads,
                        unsigned threads_y, unsigned threads_z, unsigned, CUstream stream,
                        void** parameters, void**) {
  if (const CUresult bad = refused(stream); bad != CUDA_SUCCESS) return bad;
  if (!has_function(function)) return CUDA_ERROR_INVALID_HANDLE;
  auto work = *static_cast<whorl::gpu::Work*>(parameters[0]);
  if (y != static_cast<unsigned>(work.n_segments) || z != 1 || threads_y != 1 || threads_z != 1 ||
      x == 0 || threads == 0 || threads > whorl::gpu::kThreads) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  fake_cuda::count_launch();
  stream_of(stream).push([=]() mutable {
    for (const std::byte*& source : work.sources) source = Memory::all().reach(source);
    for (std::byte*& destination : work.destinations) {
      destination = Memory::all().reach(destination);
    }
    reinterpret_cast<whorl::testing::HostKernel>(function)(work, x, threads);
  });
  return CUDA_SUCCESS;
}

} // extern "C"
