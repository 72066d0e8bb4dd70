#include "comm/device_capture.h"

#include <string>

#include "comm/device_group.h"
#include "gpu/driver.h"

namespace whorl {

Result<std::uint64_t> capture_of(CUstream stream, CUcontext context) {
  const gpu::ContextGuard guard(context); // a default stream is one of the current context
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  WHORL_CUDA_TRY(capture_info(stream, &status, &id));
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return std::uint64_t{0};
  if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) return std::uint64_t{id};
  return gpu::check(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                    "an operation in a stream that is being captured into a graph");
}

Status refuse_capture(CUstream stream, CUcontext context) {
  const auto capture = capture_of(stream, context);
  if (!capture.ok() || *capture == 0) return capture.status();
  return Status::error(Code::kInvalidUsage, std::string(kNotForGraphs));
}

} // namespace whorl
