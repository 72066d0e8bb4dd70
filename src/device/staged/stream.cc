#include "device/staged/stream.h"

#include <algorithm>
#include <compare>
#include <map>
#include <mutex>
#include <optional>

#include "device/common/capture.h"
#include "device/common/context.h"
#include "device/staged/device_stream.h"
#include "device/staged/pipeline.h"
#include "gpu/driver.h"
#include "gpu/fault.h"

namespace whorl {
namespace {

using gpu::driver;

/// Identity of a stream. The driver reuses handles of streams, but not the ids of contexts,
/// captures and streams; the driver refuses the id of a stream that is being captured, and spoils
/// the capture, so until the capture's end such a stream is known by its handle.
struct StreamKey {
  std::uint64_t context, capture, stream; ///< capture is 0 where `stream` is the stream's id

  /// Finds the key of a stream of `context`. kCudaError if a capture forbids all use of the stream.
  static Result<StreamKey> of(CUstream handle, CUcontext context);
  auto operator<=>(const StreamKey&) const = default;
};

Result<StreamKey> StreamKey::of(CUstream handle, CUcontext context) {
  const gpu::ContextGuard guard(context); // default streams of several contexts differ
  const auto capture = capture_of(handle, context);
  if (!capture.ok()) return capture.status();
  StreamKey key{gpu::id_of(context), capture->id, reinterpret_cast<std::uintptr_t>(handle)};
  if (key.capture == 0) {
    unsigned long long id = 0;
    WHORL_CUDA_TRY(cuStreamGetId(handle, &id));
    key.stream = id;
  }
  return key;
}

/// Streams that have been used. The driver does not say when the program
/// destroys a stream; so idle ones are forgotten when there are many, and made again if the program
/// still uses them.
struct Registry {
  static constexpr std::size_t kMinLimit = 1024;

  /// Forgets the streams of context `id`, which exists, that only this registry knows and that have
  /// passed all operations. Other contexts may be gone, and with them what their streams have made.
  void forget_idle(std::uint64_t id);

  std::mutex mutex; ///< guards all fields
  std::map<StreamKey, std::shared_ptr<DeviceStream>> streams;
  std::size_t limit = kMinLimit; ///< number of streams at which idle ones are forgotten
};

void Registry::forget_idle(std::uint64_t id) {
  const auto is_idle = [](const std::shared_ptr<DeviceStream>& stream) {
    if (stream.use_count() > 1) return false;
    // Nobody else can have it any more. To give up a reference orders this after what those did
    // that gave up theirs; reading the count does not.
    { const auto reference = stream; }
    return stream->has_passed_all();
  };
  std::erase_if(streams, [&](const auto& entry) {
    return entry.first.context == id && is_idle(entry.second);
  });
  limit = std::max(kMinLimit, 2 * streams.size());
}

Registry& registry() {
  static Registry* const instance = new Registry; // never destroyed: streams may outlive main()
  return *instance;
}

} // namespace

void release_idle_memory() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const auto& [key, stream] : all.streams) stream->release_memory();
}

bool devices_possible() noexcept {
  static const bool possible = driver() != nullptr;
  return possible;
}

std::string why_no_devices() { return gpu::driver_error(); }

Status device_fault() { return gpu::current_fault(); }

const void* device_buffer(const Request& request, int rank, int nranks) noexcept {
  if (!devices_possible()) return nullptr;
  // The factor counts last: the default stream is that of the buffers' context.
  const auto factor = [&]() -> const void* {
    const void* const source = request.scaled ? request.scalar_source : nullptr;
    return source != nullptr && is_device(source) ? source : nullptr;
  };
  if (request.blocks != nullptr) {
    for (const auto* const blocks : {&request.blocks->sends, &request.blocks->receives}) {
      for (const Blocks::Block& block : *blocks) {
        if (block.used && block.count > 0 && is_device(block.data)) return block.data;
      }
    }
    return factor();
  }
  if (input_bytes(request, rank, nranks) > 0 && is_device(request.send)) return request.send;
  if (output_bytes(request, rank, nranks) > 0 && is_device(request.recv)) return request.recv;
  return factor();
}

bool lacks_context(void* handle) noexcept {
  return devices_possible() && is_default_stream(static_cast<CUstream>(handle)) &&
         !has_current_context();
}

namespace {

/// Finds the context of a stream. kInvalidArgument if there is none: the handle is no stream's.
Status find_context(CUstream stream, CUcontext& context) {
  const CUresult found = is_default_stream(stream) ? driver()->cuCtxGetCurrent(&context)
                                                   : driver()->cuStreamGetCtx(stream, &context);
  if (found == CUDA_ERROR_INVALID_HANDLE || found == CUDA_ERROR_INVALID_VALUE ||
      found == CUDA_ERROR_INVALID_CONTEXT || (found == CUDA_SUCCESS && context == nullptr)) {
    const CUresult why = found == CUDA_SUCCESS ? CUDA_ERROR_INVALID_CONTEXT : found;
    return Status::error(Code::kInvalidArgument, gpu::check(why, "cuStreamGetCtx").message());
  }
  return gpu::check(found, "cuStreamGetCtx"); // the capture of the stream is spoilt, say
}

} // namespace

Result<std::shared_ptr<Stream>> device_stream(void* handle, const void* buffer) {
  if (!devices_possible()) return Status::error(Code::kInvalidArgument, gpu::driver_error());
  const auto stream = static_cast<CUstream>(handle);
  CUcontext context = nullptr;
  std::optional<gpu::ContextGuard> of_buffer;
  if (buffer != nullptr && lacks_context(handle)) {
    const auto found = context_of_memory(buffer);
    if (!found.ok()) return found.status();
    of_buffer.emplace(*found);
  }
  WHORL_TRY(find_context(stream, context));
  const auto key = StreamKey::of(stream, context);
  if (!key.ok()) return key.status();
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto known = all.streams.find(*key);
  if (known != all.streams.end()) return std::static_pointer_cast<Stream>(known->second);
  if (all.streams.size() >= all.limit) all.forget_idle(key->context);
  const gpu::ContextGuard guard(context);
  auto made = DeviceStream::make(stream, context);
  if (!made.ok()) return made.status();
  all.streams.emplace(*key, *made);
  return std::static_pointer_cast<Stream>(*std::move(made));
}

} // namespace whorl
