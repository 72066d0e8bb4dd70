#include "device/staged/stream.h"

#include <algorithm>
#include <compare>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <vector>

#include "base/params.h"
#include "device/common/capture.h"
#include "device/common/context.h"
#include "device/staged/pinned_memory.h"
#include "device/staged/pipeline.h"
#include "engine/engine.h"
#include "gpu/driver.h"
#include "gpu/fault.h"
#include "gpu/memory_kind.h"

namespace whorl {
namespace {

using gpu::driver;

CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

bool is_device(const void* pointer) noexcept {
  return !gpu::host_can_access(gpu::place_of(pointer).kind);
}

/// Parts of a buffer that are read or written, in bytes from its start.
struct Extents {
  struct Part {
    std::size_t begin, bytes;
  };
  std::vector<Part> parts;

  /// Returns the extents of a buffer of `bytes`. `has_table` says that the request's table, if
  /// there is one, describes this buffer.
  static Extents of(const Request& request, bool has_table, std::size_t bytes) {
    if (request.table == nullptr || !has_table) return {{{0, bytes}}};
    Extents extents;
    const std::size_t element = size_of(request.type);
    for (const auto& block : request.table->blocks) {
      if (block.count > 0) extents.parts.push_back({block.begin * element, block.count * element});
    }
    return extents;
  }
  std::size_t end() const noexcept {
    std::size_t end = 0;
    for (const Part& part : parts) end = std::max(end, part.begin + part.bytes);
    return end;
  }
};

class DeviceStream final : public Stream {
 public:
  /// Makes a stream for `handle`, a stream of `context`, which is current.
  static Result<std::shared_ptr<DeviceStream>> make(CUstream handle, CUcontext context) {
    auto stream = std::make_shared<DeviceStream>();
    stream->handle_ = handle;
    stream->context_ = context;
    const auto segment_bytes = param_int(Param::kSegmentBytes, 0, std::int64_t{1} << 40);
    if (!segment_bytes.ok()) return segment_bytes.status();
    stream->segment_bytes_ = static_cast<std::size_t>(*segment_bytes);
    WHORL_TRY(stream->probe_.prepare());
    return stream;
  }

  Status prepare(std::span<const Part> parts, bool alone) override;
  Result<std::uint64_t> issue(std::span<const Part> parts) override;
  Status follow(std::uint64_t number) override;
  /// Returns the memory to the pool if the stream has passed all operations. Not to be called while
  /// operations are being queued.
  void release_memory() {
    if (has_passed_all()) memory_.clear();
  }
  /// Returns whether the stream has passed all operations. Not to be called while operations are
  /// being queued.
  bool has_passed_all() const noexcept;
  std::optional<Device> device() const noexcept override { return Device{handle_, context_}; }
  bool may_start(std::uint64_t number) const noexcept override {
    const std::uint32_t ready = words_->ready.load(std::memory_order_acquire); // the stream's write
    return static_cast<std::int32_t>(ready - static_cast<std::uint32_t>(number)) >= 0;
  }
  Status fault() const override { return probe_.look(); }
  std::uint64_t block_ns() const noexcept override { return 20'000; }

 protected:
  void release(std::uint64_t number) noexcept override;

 private:
  /// Words that the stream writes, and words that the host writes.
  struct Words {
    alignas(64) std::atomic<std::uint32_t> ready{0};
    std::atomic<std::uint32_t> passed{0}, arrived{0};
    alignas(64) std::atomic<std::uint32_t> done{0};
    std::atomic<std::uint32_t> finished{0};
  };
  struct Copy {
    CUdeviceptr to, from;
    std::size_t bytes;
  };
  /// Copies and memory of an operation.
  struct Staging {
    std::vector<Copy> inputs, results;
    std::size_t used = 0;                            ///< bytes used of the memory
    std::shared_ptr<DeviceStagingPipeline> pipeline; ///< null: all is copied at once
  };

  Status make_words();
  Result<std::byte*> take(Staging& staging, std::size_t bytes);
  Status replace(Staging& staging, const Part& part, bool alone);
  Status replace_buffers(Staging& staging, Request& request, const Extents& in, const Extents& out);
  Status replace_blocks(Staging& staging, Request& request);
  Result<bool> pipeline(Staging& staging, const Part& part);
  Status copy(std::span<const Copy> copies) const;

  CUstream handle_ = nullptr;
  CUcontext context_ = nullptr;
  gpu::FaultProbe probe_;
  std::unique_ptr<StagingWords> words_memory_;
  Words* words_ = nullptr; ///< words in words_memory_; null until an operation is prepared
  CUdeviceptr ready_ = 0, done_ = 0, passed_ = 0;
  std::uint64_t issued_ = 0;
  Staging staging_;               ///< copies of the operation that has been prepared
  std::size_t segment_bytes_ = 0; ///< 0: operations are not cut into segments
  SegmentWords segment_words_;
  std::uint32_t segments_ = 0; ///< number of segments of all operations issued, modulo 2^32
  std::mutex segmented_mutex_;
  /// Operations under way that are cut into segments: value of segments_ after each, by number.
  std::map<std::uint64_t, std::uint32_t> segmented_;
  /// Staging memory, of which the last is in use. The stream orders its uses: the results of an
  /// operation are copied back before the inputs of the next one are copied to it.
  std::vector<std::unique_ptr<StagingMemory>> memory_;
};

/// Allocates the words of this stream at its first operation, not at once: only streams with
/// operations need them. Not to be called during a capture.
Status DeviceStream::make_words() {
  if (words_ != nullptr) return {};
  static_assert(sizeof(Words) <= StagingWords::kBytes);
  auto memory = StagingWords::take(context_);
  if (!memory.ok()) return memory.status();
  CUdeviceptr words = 0;
  WHORL_CUDA_TRY(cuMemHostGetDevicePointer(&words, (*memory)->data(), 0));
  ready_ = words + offsetof(Words, ready);
  done_ = words + offsetof(Words, done);
  passed_ = words + offsetof(Words, passed);
  words_memory_ = *std::move(memory);
  words_ = new (words_memory_->data()) Words;
  segment_words_ = {.arrived = &words_->arrived,
                    .finished = &words_->finished,
                    .arrived_address = words + offsetof(Words, arrived),
                    .finished_address = words + offsetof(Words, finished)};
  return {};
}

bool DeviceStream::has_passed_all() const noexcept {
  if (words_ == nullptr) return true;
  const std::uint32_t passed = words_->passed.load(std::memory_order_acquire); // the stream's write
  return staging_.used == 0 && passed == static_cast<std::uint32_t>(issued_);
}

/// Identity of a stream. The driver reuses handles of streams, but neither the ids of contexts,
/// captures and streams. It refuses the id of a stream that is being captured, and spoils the
/// capture; so until the capture's end such a stream is known by its handle.
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

/// Returns memory of idle streams to the pool: streams keep it for their next operation, but the
/// program may have destroyed them.
void release_idle_memory() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const auto& [key, stream] : all.streams) stream->release_memory();
}

/// Takes memory for one buffer, valid until the operation is complete in the stream.
Result<std::byte*> DeviceStream::take(Staging& staging, std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;
  const std::size_t begin = (staging.used + kAlignment - 1) / kAlignment * kAlignment;
  if (memory_.empty() ||
      memory_.back()->bytes() - std::min(memory_.back()->bytes(), begin) < bytes) {
    const std::size_t before = memory_.empty() ? 0 : memory_.back()->bytes();
    release_idle_memory();
    auto larger =
        StagingMemory::take(context_, staging.used > 0 ? std::max(bytes, 2 * before) : bytes);
    if (!larger.ok()) return larger.status();
    memory_.push_back(*std::move(larger));
    staging.used = bytes;
    return memory_.back()->data();
  }
  staging.used = begin + bytes;
  return memory_.back()->data() + begin;
}

Status DeviceStream::replace_buffers(Staging& staging, Request& request, const Extents& in,
                                     const Extents& out) {
  const bool device_in = in.end() > 0 && is_device(request.send);
  const bool device_out = out.end() > 0 && is_device(request.recv);
  if (!device_in && !device_out) return {};
  const auto send = address_of(request.send), recv = address_of(request.recv);
  const auto put_in = [&](std::byte* at) {
    for (const auto& [begin, bytes] : in.parts) {
      staging.inputs.push_back({address_of(at + begin), send + begin, bytes});
    }
    request.send = at;
  };
  const auto put_out = [&](std::byte* at) {
    for (const auto& [begin, bytes] : out.parts) {
      staging.results.push_back({recv + begin, address_of(at + begin), bytes});
    }
    request.recv = at;
  };
  const bool in_place =
      device_in && device_out && send < recv + out.end() && recv < send + in.end();
  if (in_place) { // keep the offset between the two buffers
    const CUdeviceptr begin = std::min(send, recv);
    const auto at = take(staging, std::max(send + in.end(), recv + out.end()) - begin);
    if (!at.ok()) return at.status();
    put_in(*at + (send - begin));
    put_out(*at + (recv - begin));
    return {};
  }
  if (device_in) {
    const auto at = take(staging, in.end());
    if (!at.ok()) return at.status();
    put_in(*at);
  }
  if (device_out) {
    const auto at = take(staging, out.end());
    if (!at.ok()) return at.status();
    put_out(*at);
  }
  return {};
}

Status DeviceStream::replace_blocks(Staging& staging, Request& request) {
  auto blocks = std::make_shared<Blocks>(*request.blocks);
  const std::size_t element = size_of(request.type);
  for (Blocks::Block& block : blocks->sends) {
    if (!block.used || block.count == 0 || !is_device(block.data)) continue;
    const auto at = take(staging, block.count * element);
    if (!at.ok()) return at.status();
    staging.inputs.push_back({address_of(*at), address_of(block.data), block.count * element});
    block.data = *at;
  }
  for (Blocks::Block& block : blocks->receives) {
    if (!block.used || block.count == 0 || !is_device(block.data)) continue;
    const auto at = take(staging, block.count * element);
    if (!at.ok()) return at.status();
    staging.results.push_back({address_of(block.data), address_of(*at), block.count * element});
    block.data = *at;
  }
  request.blocks = std::move(blocks);
  return {};
}

/// Gives a request a pipeline if it is large enough. Returns whether it has one.
Result<bool> DeviceStream::pipeline(Staging& staging, const Part& part) {
  Request& request = *part.request;
  const Membership& members = part.engine->membership();
  if (!DeviceStagingPipeline::suits(request, members, segment_bytes_)) return false;
  const auto windows = part.engine->windows_of(request);
  if (!windows.ok()) return windows.status();
  auto made = DeviceStagingPipeline::make(request, members, *windows, segment_bytes_);
  if (made == nullptr) return false;
  const auto at = take(staging, made->memory_bytes());
  if (!at.ok()) return at.status();
  made->place(*at, segment_words_, segments_, probe_);
  request.pipeline = staging.pipeline = std::move(made);
  return true;
}

/// Replaces the buffers of a request; `alone` as in prepare().
Status DeviceStream::replace(Staging& staging, const Part& part, bool alone) {
  Request& request = *part.request;
  const int rank = part.engine->membership().rank, nranks = part.engine->membership().nranks;
  if (request.scaled && request.scalar_source != nullptr && is_device(request.scalar_source)) {
    const auto at = take(staging, size_of(request.type));
    if (!at.ok()) return at.status();
    staging.inputs.push_back(
        {address_of(*at), address_of(request.scalar_source), size_of(request.type)});
    request.scalar_source = *at;
  }
  if (request.blocks != nullptr) return replace_blocks(staging, request);
  if (alone) {
    const auto segmented = pipeline(staging, part);
    if (!segmented.ok() || *segmented) return segmented.status();
  }
  const bool gathers = request.collective == Collective::kAllGather;
  return replace_buffers(staging, request,
                         Extents::of(request, !gathers, input_bytes(request, rank, nranks)),
                         Extents::of(request, gathers, output_bytes(request, rank, nranks)));
}

Status DeviceStream::copy(std::span<const Copy> copies) const {
  for (const Copy& one : copies) {
    WHORL_CUDA_TRY(cuMemcpyAsync(one.to, one.from, one.bytes, handle_));
  }
  return {};
}

Status DeviceStream::prepare(std::span<const Part> parts, bool alone) {
  const gpu::ContextGuard guard(context_);
  WHORL_TRY(refuse_capture(handle_, context_));
  WHORL_TRY(make_words());
  staging_ = {};
  // Segments of several requests in one queue would have an order, in which the other ranks need
  // not come to them.
  for (const Part& part : parts) WHORL_TRY(replace(staging_, part, alone && parts.size() == 1));
  return {};
}

Result<std::uint64_t> DeviceStream::issue(std::span<const Part>) {
  const gpu::ContextGuard guard(context_);
  WHORL_TRY(copy(staging_.inputs));
  const std::uint64_t number = issued_ + 1;
  if (staging_.pipeline != nullptr) { // before the write, because there may be no memory
    const std::lock_guard lock(segmented_mutex_);
    segments_ += staging_.pipeline->segments();
    segmented_[number] = segments_;
  }
  const auto value = static_cast<cuuint32_t>(number);
  WHORL_CUDA_TRY(cuStreamWriteValue32(handle_, ready_, value, CU_STREAM_WRITE_VALUE_DEFAULT));
  issued_ = number;
  return number;
}

Status DeviceStream::follow(std::uint64_t number) {
  const gpu::ContextGuard guard(context_);
  if (staging_.pipeline != nullptr) WHORL_TRY(staging_.pipeline->queue(handle_));
  const auto value = static_cast<cuuint32_t>(number);
  WHORL_CUDA_TRY(cuStreamWaitValue32(handle_, done_, value, CU_STREAM_WAIT_VALUE_GEQ));
  WHORL_TRY(copy(staging_.results));
  WHORL_CUDA_TRY(cuStreamWriteValue32(handle_, passed_, value, CU_STREAM_WRITE_VALUE_DEFAULT));
  staging_ = {};
  return {};
}

void DeviceStream::release(std::uint64_t number) noexcept {
  {
    const std::lock_guard lock(segmented_mutex_);
    const auto behind = segmented_.upper_bound(number);
    if (behind != segmented_.begin()) { // an operation that has failed may have segments left
      words_->finished.store(std::prev(behind)->second, std::memory_order_release);
    }
    segmented_.erase(segmented_.begin(), behind);
  }
  words_->done.store(static_cast<std::uint32_t>(number), std::memory_order_release);
}

} // namespace

bool devices_possible() noexcept {
  static const bool possible = driver() != nullptr;
  return possible;
}

std::string why_no_devices() { return gpu::driver_error(); }

Status device_fault() { return gpu::current_fault(); }

const void* device_buffer(const Request& request, int rank, int nranks) noexcept {
  if (!devices_possible()) return nullptr;
  if (request.blocks != nullptr) {
    for (const auto* const blocks : {&request.blocks->sends, &request.blocks->receives}) {
      for (const Blocks::Block& block : *blocks) {
        if (block.used && block.count > 0 && is_device(block.data)) return block.data;
      }
    }
    return nullptr;
  }
  if (input_bytes(request, rank, nranks) > 0 && is_device(request.send)) return request.send;
  if (output_bytes(request, rank, nranks) > 0 && is_device(request.recv)) return request.recv;
  return nullptr;
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
