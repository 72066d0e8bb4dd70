#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace whorl::gpu {

// Functions of the driver that whorl calls, as cuda.h declares them. The header maps some names to
// those of a later version of the function, which is then the one looked up.
// clang-format off
#define WHORL_CUDA_FUNCTIONS(function)                                                            \
  function(cuCtxEnablePeerAccess) function(cuCtxGetCurrent) function(cuCtxGetDevice)              \
  function(cuCtxPopCurrent) function(cuCtxPushCurrent) function(cuDeviceCanAccessPeer)            \
  function(cuDeviceGetAttribute) function(cuDeviceGetUuid) function(cuDevicePrimaryCtxRetain)     \
  function(cuDriverGetVersion) function(cuEventCreate) function(cuEventDestroy)                   \
  function(cuEventQuery) function(cuEventRecord) function(cuEventRecordWithFlags)                 \
  function(cuEventSynchronize) function(cuFuncGetAttribute) function(cuGetErrorName)              \
  function(cuGetErrorString) function(cuGraphAddEventRecordNode)                                \
  function(cuGraphDestroy) function(cuIpcCloseMemHandle)                                          \
  function(cuIpcGetMemHandle) function(cuIpcOpenMemHandle) function(cuLaunchCooperativeKernel)    \
  function(cuLaunchKernel) function(cuMemAddressFree) function(cuMemAddressReserve)               \
  function(cuMemAlloc) function(cuMemcpyAsync) function(cuMemExportToShareableHandle)             \
  function(cuMemFree) function(cuMemGetAddressRange)                                              \
  function(cuMemGetAllocationPropertiesFromHandle) function(cuMemHostGetDevicePointer)            \
  function(cuMemHostRegister) function(cuMemHostUnregister)                                       \
  function(cuMemImportFromShareableHandle) function(cuMemMap) function(cuMemRelease)              \
  function(cuMemRetainAllocationHandle) function(cuMemSetAccess) function(cuMemsetD8Async)        \
  function(cuMemUnmap) function(cuModuleGetFunction) function(cuModuleLoadData)                   \
  function(cuOccupancyMaxActiveBlocksPerMultiprocessor) function(cuPointerGetAttributes)          \
  function(cuStreamBatchMemOp) function(cuStreamBeginCapture)                                     \
  function(cuStreamCreateWithPriority) function(cuStreamDestroy) function(cuStreamEndCapture)     \
  function(cuStreamGetCtx) function(cuStreamGetId) function(cuStreamSynchronize)                  \
  function(cuStreamWaitEvent) function(cuStreamWaitValue32) function(cuStreamWriteValue32)        \
  function(cuThreadExchangeStreamCaptureMode)
// clang-format on

/// Functions of the CUDA driver, loaded at run time: libwhorl is not linked with CUDA, and runs
/// where there is no GPU.
struct Driver {
#define WHORL_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
  WHORL_CUDA_FUNCTIONS(WHORL_CUDA_MEMBER)
#undef WHORL_CUDA_MEMBER
  /// Gets the state of a capture, in the form of CUDA 11.3, which every later driver has; headers
  /// map the name without the number to a later one. The id is never used again.
  CUresult (*cuStreamGetCaptureInfo_v2)(CUstream, CUstreamCaptureStatus*, cuuint64_t* id, CUgraph*,
                                        const CUgraphNode**, std::size_t*) = nullptr;
  // Functions that some drivers lack: null there.
  decltype(&::cuCtxGetId) cuCtxGetId = nullptr; ///< missing in early CUDA 12
  decltype(&::cuGraphRetainUserObject) cuGraphRetainUserObject = nullptr;
  decltype(&::cuUserObjectCreate) cuUserObjectCreate = nullptr;
  decltype(&::cuUserObjectRelease) cuUserObjectRelease = nullptr;
};

/// Returns the driver, or null where the machine has none (see driver_error()). Loads it at the
/// first call, but does not initialise it: cuInit() takes long and allocates, and the program
/// decides whether to use a GPU. Any thread.
const Driver* driver() noexcept;
/// Says why driver() is null, in a sentence.
std::string driver_error();

/// Returns success or kCudaError: "`what` failed: the driver's words (CUDA_ERROR_…)".
Status check(CUresult result, std::string_view what);
/// Calls a function of the driver: WHORL_CUDA_TRY(cuMemAlloc(&pointer, size)) returns from the
/// enclosing function if it fails.
#define WHORL_CUDA_TRY(call)                                             \
  do {                                                                   \
    if (const CUresult whorl_cuda_result = ::whorl::gpu::driver()->call; \
        whorl_cuda_result != CUDA_SUCCESS) {                             \
      return ::whorl::gpu::check(whorl_cuda_result, #call);              \
    }                                                                    \
  } while (false)

/// Returns the key under which data of a context is kept. When the primary context of a device is
/// reset, everything in it is gone, and the next one may have the same handle, but has another id.
/// Old drivers have no ids; the key is the handle there.
std::uint64_t id_of(CUcontext context) noexcept;
/// Whether a context is still the one that had the id: otherwise what was made in it is gone, and
/// calls with it would concern what has been made in the next one. On old drivers always true.
bool is_same_context(CUcontext context, std::uint64_t id) noexcept;
/// Returns whether processes share a device through NVIDIA's MPS, which runs their kernels
/// together; an older driver does not say so.
bool has_mps(CUdevice device) noexcept;
/// Returns "12.8", from CUDA's numbers for versions.
std::string version_text(int version);

/// Permission, for the lifetime of the object, for calls of this thread that would otherwise
/// invalidate a graph which another thread of the program is capturing: whorl's work with its own
/// streams and memory is not part of that graph. A guard within another one makes no call.
class CaptureModeGuard {
 public:
  CaptureModeGuard() noexcept;
  ~CaptureModeGuard();
  CaptureModeGuard(const CaptureModeGuard&) = delete;
  CaptureModeGuard& operator=(const CaptureModeGuard&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

/// Current context of the thread for the lifetime of the object, with a CaptureModeGuard.
class ContextGuard {
 public:
  explicit ContextGuard(CUcontext context) noexcept;
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  const CaptureModeGuard relaxed_;
  bool pushed_ = false;
};

} // namespace whorl::gpu
