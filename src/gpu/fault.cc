#include "gpu/fault.h"

#include <fmt/format.h>

#include "gpu/driver.h"

namespace whorl::gpu {
namespace {

Status lost(CUresult result, const char* asked) {
  CUdevice device = -1;
  const bool known = driver()->cuCtxGetDevice(&device) == CUDA_SUCCESS;
  return Status::error(
      Code::kCudaError,
      fmt::format("{} has failed: {}. Most likely a kernel or a copy that the program queued "
                  "before has accessed memory that it must not (compute-sanitizer finds it); "
                  "nothing that this process has queued there is done any more",
                  known ? fmt::format("CUDA device {}", device) : std::string("the CUDA device"),
                  check(result, asked).message()));
}

} // namespace

bool is_fault(CUresult result) noexcept {
  // Results that older headers lack: CUDA_ERROR_CONTAINED, …_TENSOR_MEMORY_LEAK,
  // …_MPS_CLIENT_TERMINATED.
  for (const int later : {226, 721, 810}) {
    if (static_cast<int>(result) == later) return true;
  }
  switch (result) {
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

Status current_fault() {
  if (driver() == nullptr) return {};
  CUcontext context = nullptr;
  if (driver()->cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) return {};
  const CaptureModeGuard relaxed;
  // No query of the default stream: if a stream that synchronises with it is being captured, the
  // query would invalidate the capture.
  CUevent event = nullptr;
  CUresult result = driver()->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS) {
    result = driver()->cuEventQuery(event);
    static_cast<void>(driver()->cuEventDestroy(event));
  }
  return is_fault(result) ? lost(result, "cuEventQuery") : Status();
}

FaultProbe::~FaultProbe() {
  if (event_ == nullptr) return;
  const ContextGuard guard(context_);
  static_cast<void>(driver()->cuEventDestroy(event_));
}

Status FaultProbe::prepare() {
  WHORL_CUDA_TRY(cuCtxGetCurrent(&context_));
  WHORL_CUDA_TRY(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
  return {};
}

Status FaultProbe::look() const {
  if (event_ == nullptr) return {};
  const CaptureModeGuard relaxed;
  const CUresult result = driver()->cuEventQuery(event_);
  // No other code uses the event, so every other result means that it is gone with its context.
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) return {};
  const ContextGuard guard(context_);
  return lost(result, "cuEventQuery");
}

} // namespace whorl::gpu
