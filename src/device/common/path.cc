#include "device/common/path.h"

#include <fmt/core.h>

#include <string>

#include "base/params.h"
#include "gpu/driver.h"
#include "gpu/memory_kind.h"

namespace whorl {
namespace {

bool is_of_device(CUcontext context, int device) {
  const gpu::ContextGuard guard(context);
  CUdevice own = -1;
  return gpu::driver()->cuCtxGetDevice(&own) == CUDA_SUCCESS && own == device;
}

} // namespace

Result<DeviceWay> device_way() {
  const std::string way = param_text(Param::kDeviceAlgo);
  if (way.empty()) return DeviceWay::kAny;
  if (way == "fused") return DeviceWay::kFused;
  if (way == "schedule") return DeviceWay::kSchedule;
  if (way == "host") return DeviceWay::kHost;
  return Status::error(
      Code::kInvalidUsage,
      fmt::format("WHORL_DEVICE_ALGO=\"{}\" is none of fused, schedule, host", way));
}

bool reaches(CUcontext context, const Request& request, int rank, int nranks) {
  const auto good = [context](const void* pointer, std::size_t bytes) {
    if (bytes == 0) return true;
    const gpu::MemoryPlace place = gpu::place_of(pointer);
    if (place.kind != gpu::MemoryKind::kDevice) return false;
    // Memory of a pool or of a mapping belongs to a device, not to a context.
    return place.context != nullptr ? place.context == context
                                    : is_of_device(context, place.device);
  };
  return good(request.send, input_bytes(request, rank, nranks)) &&
         good(request.recv, output_bytes(request, rank, nranks));
}

} // namespace whorl
