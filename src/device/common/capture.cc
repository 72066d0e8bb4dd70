#include "device/common/capture.h"

#include <string>

#include "device/common/group.h"
#include "gpu/driver.h"

namespace whorl {

Result<Capture> capture_of(CUstream stream, CUcontext context) {
  const gpu::ContextGuard guard(context); // a default stream belongs to the current context
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  WHORL_CUDA_TRY(cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, nullptr, nullptr));
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return Capture{};
  if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) return Capture{.id = id, .graph = graph};
  return gpu::check(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                    "an operation in a stream that is being captured into a graph");
}

Status refuse_capture(CUstream stream, CUcontext context) {
  const auto capture = capture_of(stream, context);
  if (!capture.ok() || capture->id == 0) return capture.status();
  return Status::error(Code::kInvalidUsage, std::string(kNotForGraphs));
}

} // namespace whorl
