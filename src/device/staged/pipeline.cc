#include "device/staged/pipeline.h"

#include <algorithm>

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

} // namespace

bool is_device(const void* pointer) noexcept {
  return !gpu::host_can_access(gpu::place_of(pointer).kind);
}

bool DeviceStagingPipeline::suits(const Request& request, const Membership& members,
                                  std::size_t segment_bytes) noexcept {
  const bool to_itself = request.point_to_point() && request.peer == members.rank;
  const bool reduced_in_place = members.nranks == 1 && request.type == DataType::kBool;
  if (segment_bytes == 0 || request.blocks != nullptr || to_itself || reduced_in_place) {
    return false;
  }
  const std::size_t in = input_bytes(request, members.rank, members.nranks);
  const std::size_t out = output_bytes(request, members.rank, members.nranks);
  return std::max(in, out) >= segment_bytes && (in == 0 || is_device(request.send)) &&
         (out == 0 || is_device(request.recv));
}

std::size_t DeviceStagingPipeline::usual_memory(std::size_t segment_bytes) noexcept {
  return kSlots * 2 * round_up(segment_bytes, kAlignment);
}

std::shared_ptr<DeviceStagingPipeline> DeviceStagingPipeline::make(const Request& request,
                                                                   const Membership& members,
                                                                   const ChunkMap& whole,
                                                                   std::size_t segment_bytes) {
  auto pipeline = std::make_shared<DeviceStagingPipeline>(request, members, whole);
  return pipeline->cut(segment_bytes) ? pipeline : nullptr;
}

DeviceStagingPipeline::DeviceStagingPipeline(const Request& request, const Membership& members,
                                             const ChunkMap& whole)
    : request_(request), rank_(members.rank), whole_(whole), element_(size_of(request.type)) {
  const bool gathers = request.collective == Collective::kAllGather;
  input_ = side(request.send, input_bytes(request, members.rank, members.nranks), !gathers);
  output_ = side(request.recv, output_bytes(request, members.rank, members.nranks), gathers);
  if (request.table != nullptr) blocks_.resize(request.table->blocks.size());
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

/// Finds the segments. Returns whether there are enough of them for copies and the operation to
/// overlap.
bool DeviceStagingPipeline::cut(std::size_t segment_bytes) noexcept {
  // A vector is cut in four before segments become as large as they may: less is not worth a copy.
  constexpr std::size_t kParts = 4;
  constexpr std::size_t kMinBytes = 256 << 10;
  constexpr std::size_t kMinSegments = kSlots; // queue() fills all slots
  const std::size_t blocks = std::max(input_.blocks, output_.blocks);
  const std::size_t wanted = std::clamp(blocks * whole_.count * element_ / kParts,
                                        std::min(kMinBytes, segment_bytes), segment_bytes);
  const std::size_t window = whole_.window * element_; // of one block
  const std::size_t words = 2;                         // a write and a wait
  const std::size_t most = kMaxQueued / (input_.blocks + output_.blocks + words);
  if (most < kMinSegments) return false;
  windows_ =
      std::max({std::size_t{1}, wanted / (blocks * window), (whole_.windows + most - 1) / most});
  segments_ = (whole_.windows + windows_ - 1) / windows_;
  slot_input_ = round_up(input_.blocks * windows_ * window, kAlignment);
  slot_output_ = round_up(output_.blocks * windows_ * window, kAlignment);
  return segments_ >= kMinSegments;
}

void DeviceStagingPipeline::place(std::byte* memory, const SegmentWords& words,
                                  std::uint32_t before, const gpu::FaultProbe& probe) {
  memory_ = memory;
  words_ = words;
  before_ = before;
  probe_ = &probe;
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

// The order in the stream is one in which everything can be done one after the other, so it does
// not matter which other work is in the same queue of the device.
Status DeviceStagingPipeline::queue(CUstream stream) const {
  for (std::size_t segment = 0; segment < kSlots; ++segment) WHORL_TRY(copy_in(segment, stream));
  for (std::size_t segment = 0; segment < segments_; ++segment) {
    WHORL_TRY(copy_back(segment, stream));
    if (segment + kSlots < segments_) WHORL_TRY(copy_in(segment + kSlots, stream));
  }
  return {};
}

/// Queues the copies of a segment's input, and then the write that reports that the input has
/// arrived and that the room for the results is free.
Status DeviceStagingPipeline::copy_in(std::size_t segment, CUstream stream) const {
  const std::byte* to = input_of(segment);
  for (std::size_t b = 0; b < input_.blocks; ++b) {
    const Part from = part(input_, b, segment);
    if (from.count == 0) continue;
    WHORL_CUDA_TRY(cuMemcpyAsync(address_of(to), input_.data + from.begin * element_,
                                 from.count * element_, stream));
    to += from.count * element_;
  }
  WHORL_CUDA_TRY(cuStreamWriteValue32(stream, words_.arrived_address, count_after(segment),
                                      CU_STREAM_WRITE_VALUE_DEFAULT));
  return {};
}

/// Queues the wait for the end of a segment, and the copies of its results.
Status DeviceStagingPipeline::copy_back(std::size_t segment, CUstream stream) const {
  WHORL_CUDA_TRY(cuStreamWaitValue32(stream, words_.finished_address, count_after(segment),
                                     CU_STREAM_WAIT_VALUE_GEQ));
  const std::byte* from = output_of(segment);
  for (std::size_t b = 0; b < output_.blocks; ++b) {
    const Part to = part(output_, b, segment);
    if (to.count == 0) continue;
    WHORL_CUDA_TRY(cuMemcpyAsync(output_.data + to.begin * element_, address_of(from),
                                 to.count * element_, stream));
    from += to.count * element_;
  }
  return {};
}

void DeviceStagingPipeline::begin(const ChunkMap& whole) noexcept {
  if (whole.count == whole_.count && whole.window == whole_.window) return;
  error_ = Status::error(Code::kInternalError,
                         "an operation has other windows than its copies, which are queued");
}

/// Asks once in a millisecond whether the device is lost. kIdle: not as far as is known.
Progress DeviceStagingPipeline::wait_for_copy() noexcept {
  constexpr std::uint64_t kEveryNs = 1'000'000;
  const std::uint64_t now = sys().now_ns();
  if (now - looked_ns_ < kEveryNs) return Progress::kIdle;
  looked_ns_ = now;
  error_ = without_exceptions([this] { return probe_->look(); });
  return error_.ok() ? Progress::kIdle : Progress::kFailed;
}

Progress DeviceStagingPipeline::next(Segment& segment) noexcept {
  if (!error_.ok()) return Progress::kFailed;
  if (next_ == segments_) return Progress::kDone;
  // Pairs with the write that copy_in() queues.
  const std::uint32_t arrived = words_.arrived->load(std::memory_order_acquire);
  if (static_cast<std::int32_t>(arrived - count_after(next_)) < 0) return wait_for_copy();
  const std::size_t first = next_ * windows_;
  segment.map = whole_;
  segment.first_window = first;
  segment.map.windows = std::min(windows_, whole_.windows - first);
  segment.map.count =
      std::min(whole_.count, (first + windows_) * whole_.window) - first * whole_.window;
  if (request_.table != nullptr) {
    const Side& all = input_.all ? input_ : output_;
    for (std::size_t b = 0, begin = 0; b < blocks_.size(); ++b) {
      blocks_[b] = {begin, part(all, b, next_).count};
      begin += blocks_[b].count;
    }
    segment.map.blocks = blocks_.data();
  }
  segment.input = input_of(next_);
  segment.output = output_of(next_);
  if (request_.scaled) {
    std::size_t count = 0;
    for (std::size_t b = 0; b < input_.blocks; ++b) count += part(input_, b, next_).count;
    const void* const factor =
        request_.scalar_source != nullptr ? request_.scalar_source : request_.scalar.data();
    std::byte* const input = input_of(next_);
    scale_kernel(request_.type, default_simd())(input, input, count, factor);
  }
  return Progress::kAdvanced;
}

void DeviceStagingPipeline::finish() noexcept {
  // Pairs with the wait that copy_back() queues.
  words_.finished->store(count_after(next_), std::memory_order_release);
  ++next_;
}

} // namespace whorl
