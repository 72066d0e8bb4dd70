#include "device/staged/stream.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <vector>

#include "base/log.h"
#include "base/params.h"
#include "device/common/capture.h"
#include "device/common/context.h"
#include "device/staged/pinned_memory.h"
#include "device/staged/pipeline.h"
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
    const auto piece_bytes = param_int(Param::kPieceBytes, 0, std::int64_t{1} << 40);
    if (!piece_bytes.ok()) return piece_bytes.status();
    stream->piece_bytes_ = static_cast<std::size_t>(*piece_bytes);
    WHORL_TRY(stream->probe_.prepare());
    return stream;
  }

  Status prepare(std::span<const Part> parts) override;
  Result<std::uint64_t> issue(std::span<const Part> parts) override;
  Status follow(std::uint64_t number) override;
  /// Gives its memory back if the stream has passed all operations. Not while others are queued.
  void give_up_memory();
  std::optional<Device> device() const noexcept override { return Device{handle_, context_}; }
  bool may_start(std::uint64_t number) const noexcept override {
    const std::uint32_t ready = words_->ready.load(std::memory_order_acquire); // the stream's write
    return static_cast<std::int32_t>(ready - static_cast<std::uint32_t>(number)) >= 0;
  }
  Status fault() const override { return probe_.look(); }
  std::uint64_t nap_ns() const noexcept override { return 20'000; }

 protected:
  void release(std::uint64_t number) noexcept override;

 private:
  struct Words {
    alignas(64) std::atomic<std::uint32_t> ready{0};
    alignas(64) std::atomic<std::uint32_t> done{0};
    alignas(64) std::atomic<std::uint32_t> passed{0};
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

  Status make_words();
  Result<std::byte*> take(Staging& staging, std::size_t bytes);
  Status replace(Staging& staging, const Part& part, std::size_t piece_bytes);
  Status replace_buffers(Staging& staging, Request& request, const Extents& in, const Extents& out);
  Status replace_blocks(Staging& staging, Request& request);
  Result<bool> feed(Staging& staging, const Part& part, std::size_t piece_bytes);
  Status copy(std::span<const Copy> copies) const;

  CUstream handle_ = nullptr;
  CUcontext context_ = nullptr;
  gpu::FaultProbe probe_;
  Words* words_ = nullptr; ///< null until an operation is prepared
  CUdeviceptr ready_ = 0, done_ = 0, passed_ = 0;
  std::uint64_t issued_ = 0;
  Staging staging_;               ///< of the operation that has been prepared
  std::size_t piece_bytes_ = 0;   ///< 0: operations are not cut
  CopyStreams* copies_ = nullptr; ///< null until an operation is cut
  std::mutex fed_mutex_;
  std::set<std::uint64_t> fed_; ///< operations under way that are cut
  bool release_queued_ = false; ///< the last release() was left to copies_
  /// The last one is in use. An operation finds it free: the results of the one before it are
  /// copied back before its own inputs are copied there.
  std::vector<std::unique_ptr<StagingMemory>> memory_;
};

/// To have them made outside a capture, and only for streams that need them.
Status DeviceStream::make_words() {
  if (words_ != nullptr) return {};
  const auto memory = staging_words(context_, sizeof(Words));
  if (!memory.ok()) return memory.status();
  CUdeviceptr words = 0;
  WHORL_CUDA_TRY(cuMemHostGetDevicePointer(&words, *memory, 0));
  ready_ = words + offsetof(Words, ready);
  done_ = words + offsetof(Words, done);
  passed_ = words + offsetof(Words, passed);
  words_ = new (*memory) Words;
  return {};
}

void DeviceStream::give_up_memory() {
  if (words_ == nullptr || staging_.used > 0) return;
  const std::uint32_t passed = words_->passed.load(std::memory_order_acquire); // the stream's write
  if (passed == static_cast<std::uint32_t>(issued_)) memory_.clear();
}

/// All streams that have been used, by the ids of their context and of the stream, which are never
/// used again; default streams of several contexts may have the same.
struct Registry {
  std::mutex mutex;
  std::map<std::pair<std::uint64_t, unsigned long long>, std::shared_ptr<DeviceStream>> streams;
};
Registry& registry() {
  static Registry* const instance = new Registry; // never destroyed: streams may outlive main()
  return *instance;
}

/// Streams keep memory for their next operation, but the program may have destroyed them.
void give_up_idle_memory() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const auto& [id, stream] : all.streams) stream->give_up_memory();
}

/// Memory for one buffer; valid until the operation is complete in the stream.
Result<std::byte*> DeviceStream::take(Staging& staging, std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;
  const std::size_t begin = (staging.used + kAlignment - 1) / kAlignment * kAlignment;
  if (memory_.empty() ||
      memory_.back()->bytes() - std::min(memory_.back()->bytes(), begin) < bytes) {
    const std::size_t before = memory_.empty() ? 0 : memory_.back()->bytes();
    give_up_idle_memory();
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

/// Has a request done in pieces, if it is large enough.
Result<bool> DeviceStream::feed(Staging& staging, const Part& part, std::size_t piece_bytes) {
  Request& request = *part.request;
  const std::size_t bytes = DeviceFeed::memory_for(request, *part.members, piece_bytes);
  if (bytes == 0) return false;
  if (copies_ == nullptr) {
    const auto copies = CopyStreams::of(context_, handle_);
    if (!copies.ok()) return copies.status();
    copies_ = *copies;
  }
  const auto at = take(staging, bytes);
  if (!at.ok()) return at.status();
  auto made = DeviceFeed::make(*copies_, request, *part.members, {*at, bytes});
  if (!made.ok()) return made.status();
  request.feed = *std::move(made);
  return true;
}

Status DeviceStream::replace(Staging& staging, const Part& part, std::size_t piece_bytes) {
  Request& request = *part.request;
  const int rank = part.members->rank, nranks = part.members->nranks;
  if (request.scaled && request.scalar_source != nullptr && is_device(request.scalar_source)) {
    const auto at = take(staging, size_of(request.type));
    if (!at.ok()) return at.status();
    staging.inputs.push_back(
        {address_of(*at), address_of(request.scalar_source), size_of(request.type)});
    request.scalar_source = *at;
  }
  if (request.blocks != nullptr) return replace_blocks(staging, request);
  const auto fed = feed(staging, part, piece_bytes);
  if (!fed.ok() || *fed) return fed.status();
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

Status DeviceStream::prepare(std::span<const Part> parts) {
  const gpu::ContextGuard guard(context_);
  WHORL_TRY(refuse_capture(handle_, context_));
  WHORL_TRY(make_words());
  // Pieces get smaller where many operations, such as the sends of a group, are under way at once.
  constexpr std::size_t kAtOnce = 4, kLeastPieces = 16;
  const std::size_t piece_bytes =
      piece_bytes_ / std::clamp<std::size_t>(parts.size() / kAtOnce, 1, kLeastPieces);
  staging_ = {};
  for (const Part& part : parts) WHORL_TRY(replace(staging_, part, piece_bytes));
  return {};
}

Result<std::uint64_t> DeviceStream::issue(std::span<const Part> parts) {
  const gpu::ContextGuard guard(context_);
  WHORL_TRY(copy(staging_.inputs));
  const std::uint64_t number = issued_ + 1;
  const auto value = static_cast<cuuint32_t>(number);
  WHORL_CUDA_TRY(cuStreamWriteValue32(handle_, ready_, value, CU_STREAM_WRITE_VALUE_DEFAULT));
  issued_ = number;
  const bool fed = std::any_of(parts.begin(), parts.end(),
                               [](const Part& part) { return part.request->feed != nullptr; });
  if (fed) {
    const std::lock_guard lock(fed_mutex_);
    fed_.insert(number);
  }
  return number;
}

Status DeviceStream::follow(std::uint64_t number) {
  const gpu::ContextGuard guard(context_);
  const auto value = static_cast<cuuint32_t>(number);
  WHORL_CUDA_TRY(cuStreamWaitValue32(handle_, done_, value, CU_STREAM_WAIT_VALUE_GEQ));
  WHORL_TRY(copy(staging_.results));
  WHORL_CUDA_TRY(cuStreamWriteValue32(handle_, passed_, value, CU_STREAM_WRITE_VALUE_DEFAULT));
  staging_ = {};
  return {};
}

void DeviceStream::release(std::uint64_t number) noexcept {
  const auto value = static_cast<std::uint32_t>(number);
  {
    const std::lock_guard lock(fed_mutex_);
    const auto behind = fed_.upper_bound(number);
    const bool copying = behind != fed_.begin();
    fed_.erase(fed_.begin(), behind);
    // An operation that has started finds what was before it in the stream complete.
    release_queued_ = copying || (release_queued_ && !may_start(number));
  }
  if (release_queued_) {
    const Status status = copies_->write_when_idle(done_, value);
    if (status.ok()) return;
    if (fault().ok()) { // else nothing goes on
      log(LogLevel::kError,
          fmt::format("a stream goes on before its copies: {}", status.message()));
    }
  }
  words_->done.store(value, std::memory_order_release); // pairs with the wait that issue() queues
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

Result<std::shared_ptr<Stream>> device_stream(void* handle, const void* buffer) {
  if (!devices_possible()) return Status::error(Code::kInvalidArgument, gpu::driver_error());
  const auto stream = static_cast<CUstream>(handle);
  CUcontext context = nullptr;
  unsigned long long number = 0;
  std::optional<gpu::ContextGuard> of_buffer;
  if (buffer != nullptr && lacks_context(handle)) {
    const auto found = context_of_memory(buffer);
    if (!found.ok()) return found.status();
    of_buffer.emplace(*found);
  }
  WHORL_CUDA_TRY(cuStreamGetCtx(stream, &context));
  WHORL_CUDA_TRY(cuStreamGetId(stream, &number));
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const std::pair id(gpu::id_of(context), number);
  std::shared_ptr<DeviceStream>& known = all.streams[id];
  if (known == nullptr) {
    const gpu::ContextGuard guard(context);
    auto made = DeviceStream::make(stream, context);
    if (!made.ok()) {
      all.streams.erase(id);
      return made.status();
    }
    known = *std::move(made);
  }
  return std::static_pointer_cast<Stream>(known);
}

} // namespace whorl
