// Where the operands of an Execution's steps lie.
#include <algorithm>

#include "exec/execution.h"

namespace whorl {

/// The memory of one chunk.
std::span<std::byte> Execution::memory(Buffer buffer, std::size_t window,
                                       std::uint32_t chunk) const noexcept {
  const std::size_t element = binding_.kernels.element_size;
  if (buffer == Buffer::kScratch) [[unlikely]] {
    return {binding_.scratch + chunk * binding_.map.chunk * element,
            binding_.map.size(window, binding_.schedule->scratch[chunk]) * element};
  }
  const ChunkMap::Range range = binding_.map.range(window, chunk);
  return {base(buffer) + range.begin * element, range.size * element};
}

/// Where a buffer begins.
std::byte* Execution::base(Buffer buffer) const noexcept {
  switch (buffer) {
    case Buffer::kInput: // never written: the verifier allows it as a source only
      return const_cast<std::byte*>(binding_.input);
    case Buffer::kOutput:
      return binding_.output;
    case Buffer::kScratch:
      break;
  }
  return binding_.scratch;
}

/// Finds where `count` chunks from `chunk` on lie. Returns their bytes.
std::size_t Execution::find(Operand& operand, Buffer buffer, std::size_t window,
                            std::uint16_t chunk, std::uint32_t count) const noexcept {
  const std::span<std::byte> first = memory(buffer, window, chunk);
  operand.data = first.data();
  operand.chunk = chunk;
  operand.whole = true;
  std::size_t bytes = first.size();
  for (std::uint32_t k = 1; k < count; ++k) {
    const std::span<std::byte> next = memory(buffer, window, chunk + k);
    if (next.empty()) continue;
    if (next.data() != operand.data + bytes) operand.whole = false;
    bytes += next.size();
  }
  return bytes;
}

/// Finds the operands of the current repetition.
void Execution::find_operands(LaneRun& lane, const Step& step) const noexcept {
  if (step.waits()) return;
  const auto at = [&](Buffer buffer, std::uint16_t first) -> std::uint16_t {
    if (lane.repetition == 0) return first;
    return chunk_at(first, step.stride, lane.repetition, binding_.schedule->chunks(buffer));
  };
  // Source and target have the same sizes.
  if (step.reads_src()) {
    lane.bytes = find(lane.src, step.src, lane.window, at(step.src, step.chunk), step.count);
  }
  if (step.writes_dst()) {
    lane.bytes = find(lane.dst, step.dst, lane.window, at(step.dst, step.dst_chunk), step.count);
  }
}

/// Finds once for all repetitions of an operation where its operands lie. Not worth it for one
/// time, nor for many windows, whose steps take longer than finding their operands.
void Execution::find_places() {
  places_known_ = true;
  if (binding_.map.windows > 1) return;
  for (std::size_t i = 0; i < active_lanes_; ++i) {
    LaneRun& lane = lanes_[i];
    const std::vector<Step>& steps = lane.lane->steps;
    if (std::any_of(steps.begin(), steps.end(), [](const Step& s) { return s.repeat > 1; })) {
      continue;
    }
    lane.places.resize(steps.size());
    lane.window = 0;
    lane.repetition = 0;
    for (lane.step = 0; lane.step < steps.size(); ++lane.step) {
      const Step& step = steps[lane.step];
      find_operands(lane, step);
      lane.places[lane.step] = {
          .src = step.reads_src() ? static_cast<std::size_t>(lane.src.data - base(step.src)) : 0,
          .dst = step.writes_dst() ? static_cast<std::size_t>(lane.dst.data - base(step.dst)) : 0,
          .bytes = lane.bytes,
          .src_whole = lane.src.whole,
          .dst_whole = lane.dst.whole};
    }
  }
}

std::size_t Execution::memory_bytes() const noexcept {
  std::size_t bytes = lanes_.capacity() * sizeof(LaneRun) +
                      messages_.capacity() * sizeof messages_[0] +
                      sources_.capacity() * sizeof sources_[0];
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const LaneRun& lane = lanes_[i];
    const std::size_t places = i < active_lanes_ ? lane.lane->steps.size() : 0;
    bytes += lane.endpoints.capacity() * sizeof lane.endpoints[0] +
             lane.published.capacity() * sizeof lane.published[0] +
             std::max(lane.places.capacity(), places) * sizeof lane.places[0];
  }
  return bytes;
}

} // namespace whorl
