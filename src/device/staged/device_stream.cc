#include "device/staged/device_stream.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "base/params.h"
#include "device/common/capture.h"
#include "engine/engine.h"
#include "gpu/driver.h"

namespace whorl {
namespace {

using gpu::driver;

CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

} // namespace

/// Parts of a buffer that are read or written, in bytes from its start.
struct DeviceStream::Extents {
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

Result<std::shared_ptr<DeviceStream>> DeviceStream::make(CUstream handle, CUcontext context) {
  auto stream = std::make_shared<DeviceStream>();
  stream->handle_ = handle;
  stream->context_ = context;
  WHORL_TRY(read_param(Param::kSegmentBytes, 0, std::int64_t{1} << 40, stream->segment_bytes_));
  WHORL_TRY(stream->probe_.prepare());
  return stream;
}

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
  {
    const std::lock_guard lock(segmented_mutex_);
    if (segmented_.size() >= kMaxSegmented) return false;
  }
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
  const Status queued = queue_results(number);
  // Also after an error: the memory is free once the stream has passed what has been queued.
  const CUresult written = driver()->cuStreamWriteValue32(
      handle_, passed_, static_cast<cuuint32_t>(number), CU_STREAM_WRITE_VALUE_DEFAULT);
  staging_ = {};
  return queued.ok() ? gpu::check(written, "cuStreamWriteValue32") : queued;
}

/// Queues the wait for operation `number`, and the copies of its results.
Status DeviceStream::queue_results(std::uint64_t number) {
  if (staging_.pipeline != nullptr) WHORL_TRY(staging_.pipeline->queue(handle_));
  const auto value = static_cast<cuuint32_t>(number);
  WHORL_CUDA_TRY(cuStreamWaitValue32(handle_, done_, value, CU_STREAM_WAIT_VALUE_GEQ));
  return copy(staging_.results);
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

} // namespace whorl
