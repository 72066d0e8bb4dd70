#include "exec/reference.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

namespace whorl {
namespace {

using Bytes = std::vector<std::byte>;

/// Execution of one window on all ranks.
class Window {
 public:
  Window(std::span<const Schedule> schedules, const ChunkMap& map, const MoveKernels& kernels,
         std::span<const ReferenceBuffers> buffers, std::vector<Bytes>& scratch, std::size_t window)
      : schedules_(schedules),
        map_(map),
        element_size_(kernels.element_size),
        kernels_(kernels),
        buffers_(buffers),
        scratch_(scratch),
        window_(window) {}

  Status run() {
    for (const Schedule& schedule : schedules_) {
      position_.emplace_back(schedule.lanes.size());
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < schedules_.size(); ++rank) {
        for (std::size_t lane = 0; lane < schedules_[rank].lanes.size(); ++lane) {
          while (run_one(rank, lane)) moved = true;
          if (!error_.ok()) return error_;
        }
      }
    }
    for (std::size_t rank = 0; rank < schedules_.size(); ++rank) {
      for (std::size_t lane = 0; lane < schedules_[rank].lanes.size(); ++lane) {
        if (position_[rank][lane].step < schedules_[rank].lanes[lane].steps.size()) {
          return Status::error(Code::kInternalError,
                               fmt::format("rank {} lane {} stops before step {}", rank, lane,
                                           position_[rank][lane].step));
        }
      }
    }
    return {};
  }

 private:
  struct Position {
    std::size_t step = 0;
    int repetition = 0;
  };

  std::deque<Bytes>& fifo(std::size_t from, std::size_t to, std::uint16_t channel) {
    return fifos_[{from, to, channel}];
  }

  std::byte* address(std::size_t rank, Buffer buffer, std::uint32_t chunk) {
    if (buffer == Buffer::kScratch) {
      return scratch_[rank].data() + chunk * map_.chunk * element_size_;
    }
    std::byte* const base = buffer == Buffer::kInput ? const_cast<std::byte*>(buffers_[rank].input)
                                                     : buffers_[rank].output;
    return base + map_.begin(window_, chunk) * element_size_;
  }

  std::size_t bytes_of(std::size_t rank, Buffer buffer, std::uint32_t chunk) const {
    const std::uint32_t in_block =
        buffer == Buffer::kScratch ? schedules_[rank].scratch[chunk] : chunk;
    return map_.size(window_, in_block) * element_size_;
  }

  Bytes load(std::size_t rank, Buffer buffer, std::uint32_t first, std::uint32_t count) {
    Bytes data;
    for (std::uint32_t k = 0; k < count; ++k) {
      const std::byte* const at = address(rank, buffer, first + k);
      data.insert(data.end(), at, at + bytes_of(rank, buffer, first + k));
    }
    if (buffer == Buffer::kInput && kernels_.scale != nullptr) {
      kernels_.scale(data.data(), data.data(), data.size() / element_size_,
                     kernels_.factor.bytes.data());
    }
    return data;
  }

  void store(std::size_t rank, Buffer buffer, std::uint32_t first, std::uint32_t count,
             const Bytes& data) {
    std::size_t offset = 0;
    for (std::uint32_t k = 0; k < count; ++k) {
      const std::size_t bytes = bytes_of(rank, buffer, first + k);
      if (offset + bytes > data.size()) break;
      if (bytes > 0) std::memcpy(address(rank, buffer, first + k), data.data() + offset, bytes);
      offset += bytes;
    }
    if (offset != data.size()) {
      error_ = Status::error(Code::kInternalError,
                             fmt::format("rank {} stores a message of {} bytes into {} bytes", rank,
                                         data.size(), offset));
    }
  }

  /// Does one repetition of the lane's current step. Returns false if it has to wait or is
  /// finished.
  bool run_one(std::size_t rank, std::size_t lane_index) {
    const Schedule& schedule = schedules_[rank];
    const Lane& lane = schedule.lanes[lane_index];
    Position& at = position_[rank][lane_index];
    if (at.step == lane.steps.size()) return false;
    const Step& step = lane.steps[at.step];
    if (step.waits()) {
      if (position_[rank][step.tx].step <= step.rx) return false;
    } else if (!execute(rank, schedule, lane, step, at.repetition)) {
      return false;
    }
    if (++at.repetition == step.repeat) {
      at.repetition = 0;
      ++at.step;
    }
    return error_.ok();
  }

  bool execute(std::size_t rank, const Schedule& schedule, const Lane& lane, const Step& step,
               int repetition) {
    const auto peer = [&](int index) {
      return static_cast<std::size_t>(lane.peers[static_cast<std::size_t>(index)]);
    };
    for (int i = 0; i < step.fan_in(); ++i) {
      if (fifo(peer(step.rx + i), rank, lane.channel).empty()) return false;
    }
    const int src_chunks = schedule.chunks(step.src);
    const int dst_chunks = schedule.chunks(step.dst);
    const std::uint32_t chunk =
        step.reads_src() ? chunk_at(step.chunk, step.stride, repetition, src_chunks) : 0;
    const std::uint32_t dst_chunk =
        step.writes_dst() ? chunk_at(step.dst_chunk, step.stride, repetition, dst_chunks) : 0;

    // Operands in ascending order of rank; in a local reduction, the target comes first.
    std::vector<std::pair<std::size_t, Bytes>> operands;
    for (int i = 0; i < step.fan_in(); ++i) {
      auto& queue = fifo(peer(step.rx + i), rank, lane.channel);
      operands.emplace_back(peer(step.rx + i), std::move(queue.front()));
      queue.pop_front();
    }
    if (step.reads_src()) {
      operands.emplace_back(rank, load(rank, step.src, chunk, step.count));
    }
    std::sort(operands.begin(), operands.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    if (step.reduces() && !step.receives()) {
      operands.emplace(operands.begin(), rank, load(rank, step.dst, dst_chunk, step.count));
    }
    Bytes result = combine(rank, step, operands);
    if (!error_.ok()) return false;

    if (step.writes_dst()) store(rank, step.dst, dst_chunk, step.count, result);
    for (int i = 0; i < step.fan_out(); ++i) {
      fifo(rank, peer(step.tx + i), lane.channel).push_back(result);
    }
    return true;
  }

  Bytes combine(std::size_t rank, const Step& step,
                std::vector<std::pair<std::size_t, Bytes>>& operands) {
    if (!step.reduces()) return std::move(operands.front().second);
    std::vector<const void*> sources;
    Bytes result(operands.front().second.size());
    for (const auto& [from, data] : operands) {
      if (data.size() != result.size()) {
        error_ = Status::error(Code::kInternalError,
                               fmt::format("rank {} reduces {} bytes of rank {} with {} bytes",
                                           rank, data.size(), from, result.size()));
        return {};
      }
      sources.push_back(data.data());
    }
    if (!result.empty()) {
      kernels_.reduce(sources, result.data(), result.size() / element_size_,
                      step.final() ? kernels_.averaging : Averaging());
    }
    return result;
  }

  std::span<const Schedule> schedules_;
  const ChunkMap& map_;
  std::size_t element_size_;
  const MoveKernels& kernels_;
  std::span<const ReferenceBuffers> buffers_;
  std::vector<Bytes>& scratch_;
  std::size_t window_;
  std::vector<std::vector<Position>> position_;
  std::map<std::tuple<std::size_t, std::size_t, std::uint16_t>, std::deque<Bytes>> fifos_;
  Status error_;
};

} // namespace

Status run_reference(std::span<const Schedule> schedules, const ChunkMap& map,
                     const MoveKernels& kernels, std::span<const ReferenceBuffers> buffers) {
  std::vector<Bytes> scratch;
  for (const Schedule& schedule : schedules) {
    scratch.emplace_back(schedule.scratch.size() * map.chunk * kernels.element_size);
  }
  for (std::size_t window = 0; window < map.windows; ++window) {
    WHORL_TRY(Window(schedules, map, kernels, buffers, scratch, window).run());
  }
  return {};
}

} // namespace whorl
