#pragma once

#include <cuda.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace whorl::gpu {

// Every function of the driver that whorl calls, as cuda.h declares it. The header maps some names
// to those of a later version of the function; that is the one that is looked up.
#define WHORL_CUDA_FUNCTIONS(function)                                                             \
  function(cuInit) function(cuDriverGetVersion) function(cuGetErrorName) function(                 \
      cuGetErrorString) function(cuDeviceGet) function(cuDeviceGetCount)                           \
      function(cuDeviceGetAttribute) function(cuDeviceGetName) function(cuDeviceGetUuid) function( \
          cuDeviceCanAccessPeer) function(cuDevicePrimaryCtxRetain)                                \
          function(cuDevicePrimaryCtxRelease) function(cuDevicePrimaryCtxGetState) function(       \
              cuCtxGetCurrent) function(cuCtxGetDevice) function(cuCtxPushCurrent)                 \
              function(cuCtxPopCurrent) function(cuCtxSynchronize) function(                       \
                  cuCtxEnablePeerAccess) function(cuPointerGetAttribute)                           \
                  function(cuPointerGetAttributes) function(cuMemGetAddressRange) function(        \
                      cuMemAlloc) function(cuMemFree) function(cuMemHostAlloc)                     \
                      function(cuMemFreeHost) function(cuMemHostRegister) function(                \
                          cuMemHostUnregister) function(cuMemHostGetDevicePointer)                 \
                          function(cuMemcpyAsync) function(cuMemcpy2DAsync) function(              \
                              cuMemsetD8Async) function(cuStreamCreate) function(cuStreamDestroy)  \
                              function(cuStreamSynchronize) function(cuStreamQuery) function(      \
                                  cuStreamGetCtx) function(cuStreamWaitEvent)                      \
                                  function(cuStreamIsCapturing) function(cuStreamGetId) function(  \
                                      cuStreamWaitValue32) function(cuStreamWriteValue32)          \
                                      function(cuStreamBatchMemOp) function(cuEventCreate)         \
                                          function(cuEventRecord) function(cuEventQuery) function( \
                                              cuEventSynchronize) function(cuEventDestroy)         \
                                              function(cuModuleLoadData) function(                 \
                                                  cuModuleGetFunction) function(cuModuleUnload)    \
                                                  function(cuFuncGetAttribute)                     \
                                                      function(cuLaunchKernel)                     \
                                                          function(cuIpcGetMemHandle)              \
                                                              function(cuIpcOpenMemHandle)         \
                                                                  function(cuIpcCloseMemHandle)

/// The CUDA driver, loaded at run time: libwhorl is linked with nothing of CUDA's, and runs where
/// there is no GPU.
struct Driver {
#define WHORL_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
  WHORL_CUDA_FUNCTIONS(WHORL_CUDA_MEMBER)
#undef WHORL_CUDA_MEMBER
};

/// The driver, or null where the machine has none (see driver_error()). Loads it at the first call,
/// but does not initialise it: cuInit() takes long and allocates, and it is the program that
/// decides whether to use a GPU. Any thread.
const Driver* driver() noexcept;
/// Why driver() is null: a sentence.
std::string driver_error();

/// kOk or kCudaError: "`what` failed: the driver's words (CUDA_ERROR_…)".
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

/// Makes a context the thread's for as long as this lives.
class ContextGuard {
 public:
  explicit ContextGuard(CUcontext context) noexcept;
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  bool pushed_ = false;
};

} // namespace whorl::gpu
