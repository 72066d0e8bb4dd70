#include "device/kernel/fused.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/bytes.h"
#include "device/kernel/blocks.h"
#include "gpu/driver.h"
#include "gpu/kernels.h"

namespace whorl {
namespace {

/// Builder of launches: collects segments and begins another launch when one is full.
class Builder {
 public:
  Builder(const Request& request, std::size_t ranks) {
    if (request.op == ReduceOp::kAvg) empty_.divisor = static_cast<int>(ranks);
  }
  /// Sets the addresses from which the offsets of a rank's segments count. Comes before add().
  void place(std::size_t rank, const void* input, void* output) {
    empty_.sources[rank] = static_cast<const std::byte*>(input);
    empty_.destinations[rank] = static_cast<std::byte*>(output);
  }

  /// Range [first, first + n) of ranks.
  struct Ranks {
    std::size_t first, n;
  };
  /// Adds a segment: `count` elements that `from` have at `input`, combined, become those that `to`
  /// have at `output`, offsets in bytes.
  void add(Ranks from, std::size_t input, Ranks to, std::size_t output, std::size_t count) {
    if (count == 0 || extends_last(from, input, to, output, count)) return;
    if (works_.empty() || works_.back().n_segments == gpu::kMaxSegments) works_.push_back(empty_);
    gpu::Work& work = works_.back();
    work.segments[work.n_segments++] = {.source_offset = input,
                                        .destination_offset = output,
                                        .count = count,
                                        .first_source = static_cast<std::uint8_t>(from.first),
                                        .sources = static_cast<std::uint8_t>(from.n),
                                        .first_destination = static_cast<std::uint8_t>(to.first),
                                        .destinations = static_cast<std::uint8_t>(to.n)};
  }
  std::vector<gpu::Work> take() { return std::move(works_); }

 private:
  /// Gives the last segment one more destination, if it has the same source and place.
  bool extends_last(Ranks from, std::size_t input, Ranks to, std::size_t output,
                    std::size_t count) {
    if (works_.empty()) return false;
    gpu::Segment& last = works_.back().segments[works_.back().n_segments - 1];
    if (last.first_source != from.first || last.sources != from.n || last.source_offset != input ||
        last.destination_offset != output || last.count != count || to.n != 1 ||
        last.first_destination + std::size_t{last.destinations} != to.first) {
      return false;
    }
    ++last.destinations;
    return true;
  }

  gpu::Work empty_{};
  std::vector<gpu::Work> works_;
};

Builder::Ranks one(std::size_t rank) { return {rank, 1}; }

/// Returns the launches of a collective whose blocks, if ranks have any, have one size.
std::vector<gpu::Work> even_work(std::span<const Request> requests) {
  const Request& request = requests[0];
  const std::size_t n = requests.size(), count = request.count;
  const std::size_t block = count * size_of(request.type);
  Builder builder(request, n);
  for (std::size_t r = 0; r < n; ++r) builder.place(r, requests[r].send, requests[r].recv);
  const Builder::Ranks all{0, n};
  const auto root = static_cast<std::size_t>(request.peer);
  switch (request.collective) {
    case Collective::kAllReduce:
      builder.add(all, 0, all, 0, count);
      break;
    case Collective::kReduce:
      builder.add(all, 0, one(root), 0, count);
      break;
    case Collective::kBroadcast:
      builder.add(one(root), 0, all, 0, count);
      break;
    case Collective::kReduceScatter:
      for (std::size_t r = 0; r < n; ++r) builder.add(all, r * block, one(r), 0, count);
      break;
    case Collective::kAllGather:
      for (std::size_t r = 0; r < n; ++r) builder.add(one(r), 0, all, r * block, count);
      break;
    case Collective::kAllToAll:
      for (std::size_t from = 0; from < n; ++from) {
        for (std::size_t to = 0; to < n; ++to) {
          builder.add(one(from), to * block, one(to), from * block, count);
        }
      }
      break;
    case Collective::kGather:
      for (std::size_t r = 0; r < n; ++r) builder.add(one(r), 0, one(root), r * block, count);
      break;
    case Collective::kScatter:
      for (std::size_t r = 0; r < n; ++r) builder.add(one(root), r * block, one(r), 0, count);
      break;
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kRecv:
      break;
  }
  return builder.take();
}

/// Returns the launches of a collective whose blocks differ in size or place.
Result<std::vector<gpu::Work>> uneven_work(std::span<const Request> requests) {
  const Request& request = requests[0];
  const std::size_t n = requests.size();
  Builder builder(request, n);
  std::vector<Blocks> blocks;
  std::vector<std::byte*> inputs, outputs;
  for (std::size_t r = 0; r < n; ++r) {
    blocks.push_back(blocks_of(requests[r], static_cast<int>(r), static_cast<int>(n)));
    inputs.push_back(hull_of(blocks[r].sends, size_of(request.type)).begin);
    outputs.push_back(hull_of(blocks[r].receives, size_of(request.type)).begin);
    builder.place(r, inputs[r], outputs[r]);
  }
  WHORL_TRY(check_counts(request, blocks));
  const auto input = [&](std::size_t from, std::size_t to) {
    return static_cast<std::size_t>(blocks[from].sends[to].data - inputs[from]);
  };
  const auto output = [&](std::size_t from, std::size_t to) {
    return static_cast<std::size_t>(blocks[to].receives[from].data - outputs[to]);
  };
  const bool combines = reduces(request.collective);
  for (std::size_t from = 0; from < (combines ? 1 : n); ++from) {
    for (std::size_t to = 0; to < n; ++to) {
      const std::size_t count = blocks[from].sends[to].count;
      if (count == 0) continue;
      if (!combines) {
        builder.add(one(from), input(from, to), one(to), output(from, to), count);
        continue;
      }
      for (std::size_t r = 1; r < n; ++r) { // blocks lie side by side in every input
        if (input(r, to) == input(0, to)) continue;
        return Status::error(
            Code::kInternalError,
            fmt::format("rank {} has described the blocks of its input wrongly", r));
      }
      builder.add({0, n}, input(0, to), one(to), output(0, to), count);
    }
  }
  return builder.take();
}

} // namespace

Result<std::vector<gpu::Work>> device_work(std::span<const Request> requests) {
  if (std::any_of(requests.begin(), requests.end(), has_blocks)) return uneven_work(requests);
  return even_work(requests);
}

Status launch_device_work(const Request& request, std::span<gpu::Work> works,
                          const gpu::StopWords* cancelled, CUstream stream) {
  if (works.empty()) return {};
  CUcontext context = nullptr;
  WHORL_CUDA_TRY(cuCtxGetCurrent(&context));
  const auto kernels = gpu::Kernels::of(context);
  if (!kernels.ok()) return kernels.status();
  const bool combines = reduces(request.collective);
  for (gpu::Work& work : works) {
    work.cancelled = cancelled;
    if (combines) {
      WHORL_TRY((*kernels)->combine(work, request.type, request.op, stream));
    } else {
      for (gpu::Segment& segment : work.segments) segment.count *= size_of(request.type);
      WHORL_TRY((*kernels)->copy(work, stream));
    }
  }
  return {};
}

} // namespace whorl
