#include "device/common/context.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "gpu/driver.h"
#include "gpu/memory_kind.h"

namespace whorl {

using gpu::driver;

namespace {

bool is_of_device(CUcontext context, int device) {
  const gpu::ContextGuard guard(context);
  CUdevice own = -1;
  return driver()->cuCtxGetDevice(&own) == CUDA_SUCCESS && own == device;
}

} // namespace

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
  static auto& retained = *new std::map<int, CUcontext>; // never released: streams are kept, too
  const std::lock_guard lock(mutex);
  CUcontext& context = retained[place.device];
  if (context == nullptr) WHORL_CUDA_TRY(cuDevicePrimaryCtxRetain(&context, place.device));
  return context;
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
  if (request.blocks != nullptr) {
    const auto all_good = [&](const std::vector<Blocks::Block>& blocks) {
      return std::all_of(blocks.begin(), blocks.end(),
                         [&](const Blocks::Block& block) { return good(block.data, block.count); });
    };
    return all_good(request.blocks->sends) && all_good(request.blocks->receives);
  }
  return good(request.send, input_bytes(request, rank, nranks)) &&
         good(request.recv, output_bytes(request, rank, nranks));
}

} // namespace whorl
