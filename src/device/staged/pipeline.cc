#include "device/staged/pipeline.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <new>

#include "base/bytes.h"
#include "base/system.h"
#include "gpu/driver.h"
#include "gpu/memory_kind.h"
#include "kernels/reduce.h"

namespace whorl {
namespace {

using gpu::driver;

constexpr std::size_t kAlignment = 256;

CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

bool is_device(const void* pointer) noexcept {
  return !gpu::host_can_access(gpu::place_of(pointer).kind);
}

} // namespace

Result<CopyStreams*> CopyStreams::of(CUcontext context, CUstream stream) {
  static std::mutex mutex;
  static auto& all = *new std::map<std::pair<std::uint64_t, int>, std::unique_ptr<CopyStreams>>;
  const gpu::ContextGuard guard(context);
  int own = 0, least = 0, greatest = 0;
  WHORL_CUDA_TRY(cuStreamGetPriority(stream, &own));
  WHORL_CUDA_TRY(cuCtxGetStreamPriorityRange(&least, &greatest));
  // Programs use the default priority and the ends of the range.
  const int inner = greatest + 1;
  const int other = inner < least && inner != own ? inner : own == greatest ? least : greatest;
  const std::lock_guard lock(mutex);
  std::unique_ptr<CopyStreams>& known = all[{gpu::id_of(context), other}];
  if (known == nullptr) {
    auto made = std::make_unique<CopyStreams>();
    made->context_ = context;
    WHORL_TRY(made->probe_.prepare());
    WHORL_CUDA_TRY(cuStreamCreateWithPriority(&made->in_, CU_STREAM_NON_BLOCKING, other));
    WHORL_CUDA_TRY(cuStreamCreateWithPriority(&made->out_, CU_STREAM_NON_BLOCKING, other));
    WHORL_CUDA_TRY(cuEventCreate(&made->in_idle_, CU_EVENT_DISABLE_TIMING));
    known = std::move(made);
  }
  return known.get();
}

CopyStreams::~CopyStreams() {
  const gpu::ContextGuard guard(context_);
  if (in_idle_ != nullptr) static_cast<void>(driver()->cuEventDestroy(in_idle_));
  for (CUstream stream : {in_, out_}) {
    if (stream != nullptr) static_cast<void>(driver()->cuStreamDestroy(stream));
  }
}

void CopyStreams::synchronize() const noexcept {
  static_cast<void>(driver()->cuStreamSynchronize(in_)); // an error means that no copy is running
  static_cast<void>(driver()->cuStreamSynchronize(out_));
}

Status CopyStreams::write_when_idle(CUdeviceptr word, std::uint32_t value) const {
  const gpu::ContextGuard guard(context_);
  WHORL_CUDA_TRY(cuEventRecord(in_idle_, in_));
  WHORL_CUDA_TRY(cuStreamWaitEvent(out_, in_idle_, 0));
  WHORL_CUDA_TRY(cuStreamWriteValue32(out_, word, value, CU_STREAM_WRITE_VALUE_DEFAULT));
  return {};
}

std::size_t DeviceStagingPipeline::memory_for(const Request& request, const Membership& members,
                                              std::size_t segment_bytes) noexcept {
  // A vector is cut in four before segments become as large as they may: less is not worth a copy.
  constexpr std::size_t kParts = 4;
  constexpr std::size_t kMinBytes = 256 << 10;
  constexpr int kChunks = 8; // of a pipelined algorithm; others have one for each rank
  const bool to_itself = request.point_to_point() && request.peer == members.rank;
  const bool reduced_in_place = members.nranks == 1 && request.type == DataType::kBool;
  if (segment_bytes == 0 || request.blocks != nullptr || to_itself || reduced_in_place) return 0;
  const std::size_t in = input_bytes(request, members.rank, members.nranks);
  const std::size_t out = output_bytes(request, members.rank, members.nranks);
  const std::size_t larger = std::max(in, out);
  if (larger < segment_bytes || (in > 0 && !is_device(request.send)) ||
      (out > 0 && !is_device(request.recv))) {
    return 0;
  }
  // A segment is at least a window, which is not known yet: one message for each rank and channel.
  const std::size_t messages = request.point_to_point()
                                   ? 1
                                   : static_cast<std::size_t>(std::max(members.nranks, kChunks)) *
                                         static_cast<std::size_t>(members.channels);
  const std::size_t wanted =
      std::clamp(larger / kParts, std::min(kMinBytes, segment_bytes), segment_bytes);
  const std::size_t segment = std::max(wanted, messages * members.slot_bytes);
  const std::size_t both = round_up(segment, kAlignment) * (in > 0 && out > 0 ? 2 : 1);
  return 2 * both >= in + out ? 0 : kAlignment + kSlots * both;
}

std::size_t DeviceStagingPipeline::usual_memory(std::size_t segment_bytes) noexcept {
  return kAlignment + kSlots * 2 * round_up(segment_bytes, kAlignment);
}

Result<std::shared_ptr<DeviceStagingPipeline>> DeviceStagingPipeline::make(
    const CopyStreams& streams, const Request& request, const Membership& members,
    std::span<std::byte> memory) {
  auto pipeline = std::make_shared<DeviceStagingPipeline>(streams, request, members.rank);
  pipeline->element_ = size_of(request.type);
  const bool gathers = request.collective == Collective::kAllGather;
  pipeline->input_ =
      pipeline->side(request.send, input_bytes(request, members.rank, members.nranks), !gathers);
  pipeline->output_ =
      pipeline->side(request.recv, output_bytes(request, members.rank, members.nranks), gathers);
  pipeline->memory_ = memory;
  WHORL_CUDA_TRY(cuMemHostGetDevicePointer(&pipeline->arrived_address_, memory.data(), 0));
  return pipeline;
}

DeviceStagingPipeline::Side DeviceStagingPipeline::side(const void* data, std::size_t bytes,
                                                        bool all) const noexcept {
  if (bytes == 0) return {};
  const BlockTable* const table = request_.table.get();
  const std::size_t blocks = table == nullptr ? bytes / (request_.count * element_)
                             : all            ? table->blocks.size()
                                              : 1;
  return {.data = address_of(data), .blocks = blocks, .all = all};
}

DeviceStagingPipeline::~DeviceStagingPipeline() {
  const gpu::ContextGuard guard(streams_.context());
  if (own_memory_ != nullptr) {
    streams_.synchronize();
    own_memory_.reset();
  }
  for (const Slot& slot : slots_) {
    if (slot.returned != nullptr) static_cast<void>(driver()->cuEventDestroy(slot.returned));
  }
}

DeviceStagingPipeline::Part DeviceStagingPipeline::part(const Side& side, std::size_t block,
                                                        std::size_t segment) const noexcept {
  ChunkMap::Block all{block * whole_.count, whole_.count};
  if (request_.table != nullptr) {
    const auto& blocks = request_.table->blocks;
    all = side.all ? blocks[block]
                   : ChunkMap::Block{0, blocks[static_cast<std::size_t>(rank_)].count};
  }
  const std::size_t span = windows_ * whole_.window;
  const std::size_t begin = std::min(all.count, segment * span);
  const std::size_t end = std::min(all.count, (segment + 1) * span);
  return {all.begin + begin, end - begin};
}

void DeviceStagingPipeline::begin(const ChunkMap& whole) noexcept {
  whole_ = whole;
  error_ = explained(without_exceptions([this] { return prepare(); }));
}

/// Finds the segments and queues the first copies.
Status DeviceStagingPipeline::prepare() {
  const gpu::ContextGuard guard(streams_.context());
  // Not earlier, because the previous operation may use the same memory until now.
  arrived_ = new (memory_.data()) std::atomic<std::uint32_t>(0);
  memory_ = memory_.subspan(kAlignment);
  const std::size_t window_in = input_.blocks * whole_.window * element_;
  const std::size_t window_out = output_.blocks * whole_.window * element_;
  const auto slot_bytes = [&] {
    return round_up(windows_ * window_in, kAlignment) + round_up(windows_ * window_out, kAlignment);
  };
  windows_ = std::clamp<std::size_t>(memory_.size() / kSlots / (window_in + window_out), 1,
                                     whole_.windows);
  while (windows_ > 1 && kSlots * slot_bytes() > memory_.size()) --windows_;
  segments_ = (whole_.windows + windows_ - 1) / windows_;
  if (slot_bytes() > memory_.size()) { // a window is larger than memory_for() assumed
    auto made = StagingMemory::take(streams_.context(), kSlots * slot_bytes());
    if (!made.ok()) return made.status();
    own_memory_ = *std::move(made);
    memory_ = {own_memory_->data(), own_memory_->bytes()};
  }
  used_slots_ = std::min({kSlots, segments_, memory_.size() / slot_bytes()});
  for (std::size_t s = 0; s < used_slots_; ++s) {
    slots_[s].input = memory_.data() + s * slot_bytes();
    slots_[s].output = slots_[s].input + round_up(windows_ * window_in, kAlignment);
    if (output_.blocks > 0) {
      WHORL_CUDA_TRY(cuEventCreate(&slots_[s].returned, CU_EVENT_DISABLE_TIMING));
    }
  }
  for (std::size_t segment = 0; segment < used_slots_; ++segment) WHORL_TRY(fetch(segment));
  return {};
}

/// Queues the copies to the slot of a segment, which the host does not use any more, and then the
/// write that reports that the input has arrived and the room for the results is free.
Status DeviceStagingPipeline::fetch(std::size_t segment) {
  std::byte* to = slot(segment).input;
  for (std::size_t b = 0; b < input_.blocks; ++b) {
    const Part from = part(input_, b, segment);
    if (from.count == 0) continue;
    WHORL_CUDA_TRY(cuMemcpyAsync(address_of(to), input_.data + from.begin * element_,
                                 from.count * element_, streams_.in()));
    to += from.count * element_;
  }
  if (segment >= used_slots_ && output_.blocks > 0) {
    WHORL_CUDA_TRY(cuStreamWaitEvent(streams_.in(), slot(segment).returned, 0));
  }
  WHORL_CUDA_TRY(cuStreamWriteValue32(streams_.in(), arrived_address_,
                                      static_cast<cuuint32_t>(segment + 1),
                                      CU_STREAM_WRITE_VALUE_DEFAULT));
  return {};
}

/// Returns the error, or that of the device if the device is lost.
Status DeviceStagingPipeline::explained(Status error) const noexcept {
  if (error.ok()) return error;
  const Status fault = without_exceptions([this] { return streams_.fault(); });
  return fault.ok() ? error : fault;
}

/// Checks once in a millisecond whether the device is lost. kIdle: it is not.
Progress DeviceStagingPipeline::wait_for_copy() noexcept {
  constexpr std::uint64_t kEveryNs = 1'000'000;
  const std::uint64_t now = sys().now_ns();
  if (now - looked_ns_ < kEveryNs) return Progress::kIdle;
  looked_ns_ = now;
  error_ = without_exceptions([this] { return streams_.fault(); });
  return error_.ok() ? Progress::kIdle : Progress::kFailed;
}

Progress DeviceStagingPipeline::next(Segment& segment) noexcept {
  if (!error_.ok()) return Progress::kFailed;
  if (next_ == segments_) return Progress::kDone;
  if (arrived_->load(std::memory_order_acquire) <= next_) return wait_for_copy(); // fetch()'s write
  Slot& at = slot(next_);
  const std::size_t first = next_ * windows_;
  segment.map = whole_;
  segment.first_window = first;
  segment.map.windows = std::min(windows_, whole_.windows - first);
  segment.map.count =
      std::min(whole_.count, (first + windows_) * whole_.window) - first * whole_.window;
  if (request_.table != nullptr) {
    const Side& all = input_.all ? input_ : output_;
    const std::size_t n = request_.table->blocks.size();
    error_ = without_exceptions([&]() -> Status {
      at.blocks.resize(n);
      return {};
    });
    if (!error_.ok()) return Progress::kFailed;
    for (std::size_t b = 0, begin = 0; b < n; ++b) {
      at.blocks[b] = {begin, part(all, b, next_).count};
      begin += at.blocks[b].count;
    }
    segment.map.blocks = at.blocks.data();
  }
  segment.input = at.input;
  segment.output = at.output;
  if (request_.scaled) {
    std::size_t count = 0;
    for (std::size_t b = 0; b < input_.blocks; ++b) count += part(input_, b, next_).count;
    const void* const factor =
        request_.scalar_source != nullptr ? request_.scalar_source : request_.scalar.data();
    scale_kernel(request_.type, default_simd())(at.input, at.input, count, factor);
  }
  return Progress::kAdvanced;
}

void DeviceStagingPipeline::finish() noexcept {
  const gpu::ContextGuard guard(streams_.context());
  error_ = explained(without_exceptions([this]() -> Status {
    WHORL_TRY(deliver(next_));
    return next_ + used_slots_ < segments_ ? fetch(next_ + used_slots_) : Status();
  }));
  ++next_;
}

/// Queues the copies of a segment's results.
Status DeviceStagingPipeline::deliver(std::size_t segment) {
  const std::byte* from = slot(segment).output;
  for (std::size_t b = 0; b < output_.blocks; ++b) {
    const Part to = part(output_, b, segment);
    if (to.count == 0) continue;
    WHORL_CUDA_TRY(cuMemcpyAsync(output_.data + to.begin * element_, address_of(from),
                                 to.count * element_, streams_.out()));
    from += to.count * element_;
  }
  if (output_.blocks > 0) WHORL_CUDA_TRY(cuEventRecord(slot(segment).returned, streams_.out()));
  return {};
}

} // namespace whorl
