#include "comm/device_stream.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "gpu/driver.h"
#include "gpu/memory_kind.h"
#include "transports/shm/heap.h"

namespace whorl {
namespace {

using gpu::driver;

CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

bool is_device(const void* pointer) noexcept {
  return !gpu::host_can_access(gpu::place_of(pointer).kind);
}

/// Host memory that devices copy to and from, and that other ranks of the host can map.
class StagingMemory {
 public:
  static Result<std::unique_ptr<StagingMemory>> make(std::size_t bytes) {
    auto memory = std::make_unique<StagingMemory>();
    const auto made = heap_alloc(bytes);
    if (!made.ok()) return made.status();
    memory->data_ = static_cast<std::byte*>(*made);
    memory->bytes_ = bytes;
    WHORL_CUDA_TRY(cuMemHostRegister(*made, bytes, CU_MEMHOSTREGISTER_PORTABLE));
    memory->registered_ = true;
    return memory;
  }
  StagingMemory() = default;
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;
  ~StagingMemory() {
    if (registered_) static_cast<void>(driver()->cuMemHostUnregister(data_));
    if (data_ != nullptr) static_cast<void>(heap_free(data_));
  }
  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool registered_ = false;
};

/// What of a buffer is read or written, in bytes from its start.
struct Extents {
  struct Part {
    std::size_t begin, bytes;
  };
  std::vector<Part> parts;

  /// `has_table`: of the buffer that the request's table, if it has one, describes.
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
  /// `handle` is a stream of `context`, which is current.
  static Result<std::shared_ptr<DeviceStream>> make(CUstream handle, CUcontext context) {
    auto stream = std::make_shared<DeviceStream>();
    stream->handle_ = handle;
    stream->context_ = context;
    auto memory = StagingMemory::make(sizeof(Words));
    if (!memory.ok()) return memory.status();
    stream->words_ = new ((*memory)->data()) Words;
    stream->words_memory_ = *std::move(memory);
    CUdeviceptr words = 0;
    WHORL_CUDA_TRY(cuMemHostGetDevicePointer(&words, stream->words_, 0));
    stream->ready_ = words + offsetof(Words, ready);
    stream->done_ = words + offsetof(Words, done);
    return stream;
  }

  Result<std::uint64_t> issue(std::span<const Part> parts) override;
  std::optional<Device> device() const noexcept override { return Device{handle_, context_}; }
  bool may_start(std::uint64_t number) const noexcept override {
    const std::uint32_t ready = words_->ready.load(std::memory_order_acquire); // the stream's write
    return static_cast<std::int32_t>(ready - static_cast<std::uint32_t>(number)) >= 0;
  }
  std::uint64_t nap_ns() const noexcept override { return 20'000; }
  void complete(std::uint64_t number, const Status& status) override {
    keep(status);
    // Pairs with the wait that issue() has queued.
    words_->done.store(static_cast<std::uint32_t>(number), std::memory_order_release);
  }

 private:
  struct Words {
    alignas(64) std::atomic<std::uint32_t> ready{0};
    alignas(64) std::atomic<std::uint32_t> done{0};
  };
  struct Copy {
    CUdeviceptr to, from;
    std::size_t bytes;
  };
  /// What an operation needs besides itself.
  struct Staging {
    std::vector<Copy> inputs, results;
    std::size_t used = 0; ///< of the memory
  };

  Status check_not_capturing() const;
  Result<std::byte*> take(Staging& staging, std::size_t bytes);
  Status replace(Staging& staging, const Part& part);
  Status replace_buffers(Staging& staging, Request& request, const Extents& in, const Extents& out);
  Status replace_blocks(Staging& staging, Request& request);
  Status copy(std::span<const Copy> copies) const;

  CUstream handle_ = nullptr;
  CUcontext context_ = nullptr;
  std::unique_ptr<StagingMemory> words_memory_;
  Words* words_ = nullptr;
  CUdeviceptr ready_ = 0, done_ = 0;
  std::uint64_t issued_ = 0;
  /// The last one is in use. An operation finds it free: the results of the one before it are
  /// copied back before its own inputs are copied there.
  std::vector<std::unique_ptr<StagingMemory>> memory_;
};

Status DeviceStream::check_not_capturing() const {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  WHORL_CUDA_TRY(cuStreamIsCapturing(handle_, &capture));
  if (capture == CU_STREAM_CAPTURE_STATUS_NONE) return {};
  return Status::error(
      Code::kInvalidUsage,
      "the stream is being captured into a graph, but this operation is carried "
      "out by the host, which a graph cannot repeat; issue it outside the capture");
}

/// Memory for one buffer; valid until the operation is complete in the stream.
Result<std::byte*> DeviceStream::take(Staging& staging, std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;
  const std::size_t begin = (staging.used + kAlignment - 1) / kAlignment * kAlignment;
  if (memory_.empty() ||
      memory_.back()->bytes() - std::min(memory_.back()->bytes(), begin) < bytes) {
    if (staging.used == 0 && driver()->cuStreamQuery(handle_) == CUDA_SUCCESS) memory_.clear();
    const std::size_t before = memory_.empty() ? 0 : memory_.back()->bytes();
    auto larger = StagingMemory::make(std::max({bytes, 2 * before, std::size_t{1} << 20}));
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
  if (in_place) { // they lie to each other as they did
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

Status DeviceStream::replace(Staging& staging, const Part& part) {
  Request& request = *part.request;
  if (request.scaled && request.scalar_source != nullptr && is_device(request.scalar_source)) {
    const auto at = take(staging, size_of(request.type));
    if (!at.ok()) return at.status();
    staging.inputs.push_back(
        {address_of(*at), address_of(request.scalar_source), size_of(request.type)});
    request.scalar_source = *at;
  }
  if (request.blocks != nullptr) return replace_blocks(staging, request);
  const bool gathers = request.collective == Collective::kAllGather;
  return replace_buffers(
      staging, request,
      Extents::of(request, !gathers, input_bytes(request, part.rank, part.nranks)),
      Extents::of(request, gathers, output_bytes(request, part.rank, part.nranks)));
}

Status DeviceStream::copy(std::span<const Copy> copies) const {
  for (const Copy& one : copies) {
    WHORL_CUDA_TRY(cuMemcpyAsync(one.to, one.from, one.bytes, handle_));
  }
  return {};
}

Result<std::uint64_t> DeviceStream::issue(std::span<const Part> parts) {
  const gpu::ContextGuard guard(context_);
  WHORL_TRY(check_not_capturing());
  Staging staging;
  for (const Part& part : parts) WHORL_TRY(replace(staging, part));
  WHORL_TRY(copy(staging.inputs));
  const std::uint64_t number = issued_ + 1;
  const auto value = static_cast<cuuint32_t>(number);
  WHORL_CUDA_TRY(cuStreamWriteValue32(handle_, ready_, value, CU_STREAM_WRITE_VALUE_DEFAULT));
  issued_ = number;
  WHORL_CUDA_TRY(cuStreamWaitValue32(handle_, done_, value, CU_STREAM_WAIT_VALUE_GEQ));
  WHORL_TRY(copy(staging.results));
  return number;
}

/// All streams that have been used, by the driver's number for them, which is never used again.
struct Registry {
  std::mutex mutex;
  std::map<unsigned long long, std::shared_ptr<DeviceStream>> streams;
};
Registry& registry() {
  static Registry* const instance = new Registry; // never destroyed: streams may outlive main()
  return *instance;
}

} // namespace

bool devices_possible() noexcept {
  static const bool possible = driver() != nullptr;
  return possible;
}

std::string why_no_devices() { return gpu::driver_error(); }

bool on_device(const Request& request, int rank, int nranks) noexcept {
  if (!devices_possible()) return false;
  if (request.blocks != nullptr) {
    const auto any = [](const std::vector<Blocks::Block>& blocks) {
      return std::any_of(blocks.begin(), blocks.end(), [](const Blocks::Block& block) {
        return block.used && block.count > 0 && is_device(block.data);
      });
    };
    return any(request.blocks->sends) || any(request.blocks->receives);
  }
  return (input_bytes(request, rank, nranks) > 0 && is_device(request.send)) ||
         (output_bytes(request, rank, nranks) > 0 && is_device(request.recv));
}

Result<std::shared_ptr<Stream>> device_stream(void* handle) {
  if (!devices_possible()) return Status::error(Code::kInvalidArgument, gpu::driver_error());
  const auto stream = static_cast<CUstream>(handle);
  CUcontext context = nullptr;
  unsigned long long number = 0;
  WHORL_CUDA_TRY(cuStreamGetCtx(stream, &context));
  WHORL_CUDA_TRY(cuStreamGetId(stream, &number));
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::shared_ptr<DeviceStream>& known = all.streams[number];
  if (known == nullptr) {
    const gpu::ContextGuard guard(context);
    auto made = DeviceStream::make(stream, context);
    if (!made.ok()) {
      all.streams.erase(number);
      return made.status();
    }
    known = *std::move(made);
  }
  return std::static_pointer_cast<Stream>(known);
}

} // namespace whorl
