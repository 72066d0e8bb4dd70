#include "device/kernel/fused.h"

#include <algorithm>

#include "base/bytes.h"
#include "gpu/driver.h"
#include "gpu/kernels.h"

namespace whorl {
namespace {

/// Builder of launches: collects segments and begins another launch when one is full.
class Builder {
 public:
  Builder(std::span<const Request> requests, Slice slice)
      : requests_(requests), begin_(slice.begin * size_of(requests[0].type)) {
    for (std::size_t rank = 0; rank < requests.size(); ++rank) {
      empty_.sources[rank] = static_cast<const std::byte*>(requests[rank].send);
      empty_.destinations[rank] = static_cast<std::byte*>(requests[rank].recv);
    }
    empty_.count = slice.count;
    if (requests[0].op == ReduceOp::kAvg) empty_.divisor = static_cast<int>(requests.size());
  }

  /// Range [first, first + n) of ranks.
  struct Ranks {
    std::size_t first, n;
  };
  /// Adds a segment: the combination of block `from_block` of the inputs of `from` becomes block
  /// `to_block` of the outputs of `to`.
  void add(Ranks from, std::size_t from_block, Ranks to, std::size_t to_block) {
    if (works_.empty() || works_.back().n_segments == gpu::kMaxSegments) works_.push_back(empty_);
    gpu::Work& work = works_.back();
    const std::size_t block = requests_[0].count * size_of(requests_[0].type);
    work.segments[work.n_segments++] = {.source_offset = from_block * block + begin_,
                                        .destination_offset = to_block * block + begin_,
                                        .first_source = static_cast<std::uint8_t>(from.first),
                                        .sources = static_cast<std::uint8_t>(from.n),
                                        .first_destination = static_cast<std::uint8_t>(to.first),
                                        .destinations = static_cast<std::uint8_t>(to.n)};
  }
  std::vector<gpu::Work> take() { return std::move(works_); }

 private:
  std::span<const Request> requests_;
  std::size_t begin_; ///< bytes of each block before the slice
  gpu::Work empty_{};
  std::vector<gpu::Work> works_;
};

} // namespace

Slice slice_of(const Request& request, std::size_t index, std::size_t of) noexcept {
  // Below this size of a rank's part, starting a kernel takes longer than its work.
  constexpr std::size_t kMinBytes = 64 * 1024;
  const std::size_t least = kMinBytes / size_of(request.type);
  const std::size_t part = std::max(round_up((request.count + of - 1) / of, least / 16), least);
  const std::size_t begin = std::min(index * part, request.count);
  return {begin, std::min(part, request.count - begin)};
}

std::vector<gpu::Work> device_work(std::span<const Request> requests, Slice slice) {
  using Ranks = Builder::Ranks;
  Builder builder(requests, slice);
  const std::size_t n = requests.size();
  const Ranks all{0, n};
  const auto one = [](std::size_t rank) { return Ranks{rank, 1}; };
  const auto root = static_cast<std::size_t>(requests[0].peer);
  switch (requests[0].collective) {
    case Collective::kAllReduce:
      builder.add(all, 0, all, 0);
      break;
    case Collective::kReduce:
      builder.add(all, 0, one(root), 0);
      break;
    case Collective::kBroadcast:
      builder.add(one(root), 0, all, 0);
      break;
    case Collective::kReduceScatter:
      for (std::size_t r = 0; r < n; ++r) builder.add(all, r, one(r), 0);
      break;
    case Collective::kAllGather:
      for (std::size_t r = 0; r < n; ++r) builder.add(one(r), 0, all, r);
      break;
    case Collective::kAllToAll:
      for (std::size_t from = 0; from < n; ++from) {
        for (std::size_t to = 0; to < n; ++to) builder.add(one(from), to, one(to), from);
      }
      break;
    case Collective::kGather:
      for (std::size_t r = 0; r < n; ++r) builder.add(one(r), 0, one(root), r);
      break;
    case Collective::kScatter:
      for (std::size_t r = 0; r < n; ++r) builder.add(one(root), r, one(r), 0);
      break;
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kRecv:
      break;
  }
  return builder.take();
}

Status launch_device_work(std::span<const Request> requests, Slice slice,
                          const std::uint32_t* cancelled, CUstream stream) {
  if (slice.count == 0) return {};
  CUcontext context = nullptr;
  WHORL_CUDA_TRY(cuCtxGetCurrent(&context));
  const auto kernels = gpu::Kernels::of(context);
  if (!kernels.ok()) return kernels.status();
  const Request& request = requests[0];
  for (gpu::Work& work : device_work(requests, slice)) {
    work.cancelled = cancelled;
    if (reduces(request.collective)) {
      WHORL_TRY((*kernels)->combine(work, request.type, request.op, stream));
    } else {
      work.count *= size_of(request.type);
      WHORL_TRY((*kernels)->copy(work, stream));
    }
  }
  return {};
}

} // namespace whorl
