#include "device/common/context.h"

#include <fmt/core.h>

#include <map>
#include <mutex>

#include "base/log.h"
#include "base/params.h"
#include "device/staged/pinned_memory.h"
#include "device/staged/pipeline.h"
#include "device/staged/stream.h"
#include "gpu/driver.h"
#include "gpu/kernels.h"
#include "gpu/memory_kind.h"

namespace whorl {

using gpu::driver;

bool is_default_stream(CUstream stream) noexcept {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

bool has_current_context() noexcept {
  CUcontext context = nullptr;
  return driver()->cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != nullptr;
}

Result<CUcontext> context_of_memory(const void* pointer) {
  const gpu::MemoryPlace place = gpu::place_of(pointer);
  if (place.context != nullptr) return static_cast<CUcontext>(place.context);
  if (place.device < 0) {
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("the driver does not say which device {} belongs to", pointer));
  }
  static std::mutex mutex;
  static auto& retained = *new std::map<int, CUcontext>; // as long as streams of these are kept
  const std::lock_guard lock(mutex);
  CUcontext& context = retained[place.device];
  if (context == nullptr) WHORL_CUDA_TRY(cuDevicePrimaryCtxRetain(&context, place.device));
  return context;
}

void prepare_device(int ranks) {
  CUcontext context = nullptr;
  if (!devices_possible() || driver()->cuCtxGetCurrent(&context) != CUDA_SUCCESS ||
      context == nullptr) {
    return;
  }
  Status status = gpu::Kernels::of(context).status();
  const auto piece_bytes = param_int(Param::kPieceBytes, 0, std::int64_t{1} << 40);
  if (status.ok()) status = piece_bytes.status();
  if (status.ok()) {
    status =
        StagingMemory::reserve(context, static_cast<std::size_t>(ranks),
                               DeviceFeed::usual_memory(static_cast<std::size_t>(*piece_bytes)));
  }
  // Whoever needs it gets the error.
  if (!status.ok()) log(LogLevel::kInfo, "preparing the device: " + status.message());
}

} // namespace whorl
