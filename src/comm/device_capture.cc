#include "comm/device_capture.h"

#include "gpu/driver.h"

namespace whorl {

Status refuse_capture(CUstream stream, CUcontext context) {
  const gpu::ContextGuard guard(context); // a default stream is one of the current context
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  WHORL_CUDA_TRY(cuStreamIsCapturing(stream, &status));
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return {};
  return Status::error(Code::kInvalidUsage,
                       "the stream is being captured into a graph, but this operation is not one "
                       "kernel, which is all "
                       "that a graph can repeat of whorl; issue it outside the capture");
}

} // namespace whorl
