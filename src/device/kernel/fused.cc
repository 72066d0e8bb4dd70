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
  explicit Builder(std::span<const Request> requests) : requests_(requests) {
    for (std::size_t rank = 0; rank < requests.size(); ++rank) {
      empty_.sources[rank] = static_cast<const std::byte*>(requests[rank].send);
      empty_.destinations[rank] = static_cast<std::byte*>(requests[rank].recv);
    }
    empty_.count = requests[0].count;
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
    work.segments[work.n_segments++] = {.source_offset = from_block * block,
                                        .destination_offset = to_block * block,
                                        .first_source = static_cast<std::uint8_t>(from.first),
                                        .sources = static_cast<std::uint8_t>(from.n),
                                        .first_destination = static_cast<std::uint8_t>(to.first),
                                        .destinations = static_cast<std::uint8_t>(to.n)};
  }
  std::vector<gpu::Work> take() { return std::move(works_); }

 private:
  std::span<const Request> requests_;
  gpu::Work empty_{};
  std::vector<gpu::Work> works_;
};

} // namespace

std::vector<gpu::Work> device_work(std::span<const Request> requests) {
  using Ranks = Builder::Ranks;
  Builder builder(requests);
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

Status launch_device_work(std::span<const Request> requests, const gpu::StopWords* cancelled,
                          CUstream stream) {
  if (requests[0].count == 0) return {};
  CUcontext context = nullptr;
  WHORL_CUDA_TRY(cuCtxGetCurrent(&context));
  const auto kernels = gpu::Kernels::of(context);
  if (!kernels.ok()) return kernels.status();
  const Request& request = requests[0];
  for (gpu::Work& work : device_work(requests)) {
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
