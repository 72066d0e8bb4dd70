#include "comm/device_capture.h"

#include <string>

#include "comm/device_group.h"
#include "gpu/driver.h"

namespace whorl {

Result<bool> is_captured(CUstream stream, CUcontext context) {
  const gpu::ContextGuard guard(context); // a default stream is one of the current context
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  WHORL_CUDA_TRY(cuStreamIsCapturing(stream, &status));
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Status refuse_capture(CUstream stream, CUcontext context) {
  const auto captured = is_captured(stream, context);
  if (!captured.ok() || !*captured) return captured.status();
  return Status::error(Code::kInvalidUsage, std::string(kNotForGraphs));
}

} // namespace whorl
