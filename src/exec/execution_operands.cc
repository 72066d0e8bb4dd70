// Addresses of the operands of an Execution's steps.
#include <algorithm>
#include <utility>

#include "exec/execution.h"

namespace whorl {

/// Returns the memory of one chunk.
std::span<std::byte> Execution::memory(Buffer buffer, std::size_t window,
                                       std::uint32_t chunk) const noexcept {
  const std::size_t element = binding_.kernels.element_size;
  if (buffer == Buffer::kScratch) [[unlikely]] {
    return {binding_.scratch + chunk * binding_.map.chunk * element,
            binding_.map.size(window, binding_.schedule->scratch[chunk]) * element};
  }
  const ChunkMap::Range range = binding_.map.blocks == nullptr
                                    ? binding_.map.range(window, chunk)
                                    : binding_.map.range(buffer, window, chunk);
  return {base(buffer) + range.begin * element, range.size * element};
}

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

/// Finds `count` chunks from `chunk` on in memory. Returns their size in bytes.
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
  // Source and target have the same size.
  if (step.reads_src()) {
    lane.bytes = find(lane.src, step.src, lane.window, at(step.src, step.chunk), step.count);
  }
  if (step.writes_dst()) {
    lane.bytes = find(lane.dst, step.dst, lane.window, at(step.dst, step.dst_chunk), step.count);
  }
}

/// Finds the operands once for all repetitions of an operation. Does not pay for an operation that
/// is done once, nor for many windows, whose steps take longer than finding their operands.
void Execution::find_step_operands() {
  step_operands_known_ = true;
  if (binding_.map.windows > 1) return;
  for (std::size_t i = 0; i < active_lanes_; ++i) {
    LaneRun& lane = lanes_[i];
    const std::vector<Step>& steps = lane.lane->steps;
    if (std::any_of(steps.begin(), steps.end(), [](const Step& s) { return s.repeat > 1; })) {
      continue;
    }
    lane.step_operands.resize(steps.size());
    lane.window = 0;
    lane.repetition = 0;
    for (lane.step = 0; lane.step < steps.size(); ++lane.step) {
      const Step& step = steps[lane.step];
      find_operands(lane, step);
      const auto offset = [this](bool used, const Operand& operand, Buffer buffer) {
        return used ? static_cast<std::size_t>(operand.data - base(buffer)) : 0;
      };
      lane.step_operands[lane.step] = {.src = lane.src,
                                       .dst = lane.dst,
                                       .bytes = lane.bytes,
                                       .src_offset = offset(step.reads_src(), lane.src, step.src),
                                       .dst_offset = offset(step.writes_dst(), lane.dst, step.dst),
                                       .phase = first_phase(step),
                                       .fuses_with_next = false};
    }
    for (std::size_t s = 0; s < steps.size(); ++s)
      lane.step_operands[s].fuses_with_next = fuses_with_next(lane, s);
  }
}

/// Returns whether a step can do the next one as well. Where peers may read a rank's input until
/// they have received all vectors, the result waits in scratch and a step of its own copies it to
/// its target (oneshot, in place). Where everything was sent through slots, no peer reads the
/// input, and the result can go to its target at once.
bool Execution::fuses_with_next(const LaneRun& lane, std::size_t step) const noexcept {
  const std::vector<Step>& steps = lane.lane->steps;
  if (step + 1 == steps.size() || binding_.nontemporal_output) return false;
  const Step& makes = steps[step];
  const Step& copies = steps[step + 1];
  if (!makes.receives() || !makes.copies() || makes.sends() || makes.dst != Buffer::kScratch ||
      copies.ops != kCopy || copies.src != Buffer::kScratch || copies.dst == Buffer::kScratch ||
      copies.chunk != makes.dst_chunk || copies.count != makes.count) {
    return false;
  }
  const bool whole = (!makes.reads_src() || lane.step_operands[step].src.whole) &&
                     lane.step_operands[step].dst.whole && lane.step_operands[step + 1].dst.whole;
  // No other step may use the result in scratch.
  const auto overlaps = [&](std::uint32_t chunk, const Step& other) {
    return chunk < makes.dst_chunk + std::uint32_t{makes.count} &&
           makes.dst_chunk < chunk + std::uint32_t{other.count};
  };
  const auto uses = [&](const Step& other) {
    if (&other == &makes || &other == &copies) return false;
    const bool reads = other.reads_src() && other.src == Buffer::kScratch;
    const bool writes = other.writes_dst() && other.dst == Buffer::kScratch;
    return other.repeat > 1 || (reads && overlaps(other.chunk, other)) ||
           (writes && overlaps(other.dst_chunk, other));
  };
  return whole && std::none_of(binding_.schedule->lanes.begin(), binding_.schedule->lanes.end(),
                               [&](const Lane& any) {
                                 return std::any_of(any.steps.begin(), any.steps.end(), uses);
                               });
}

/// Moves the operands of all steps to other buffers.
void Execution::rebase_step_operands() noexcept {
  for (std::size_t i = 0; i < active_lanes_; ++i) {
    LaneRun& lane = lanes_[i];
    for (std::size_t s = 0; s < lane.step_operands.size(); ++s) {
      const Step& step = lane.lane->steps[s];
      StepOperands& operands = lane.step_operands[s];
      operands.src.data = base(step.src) + operands.src_offset;
      operands.dst.data = base(step.dst) + operands.dst_offset;
    }
  }
}

std::size_t Execution::grown() noexcept {
  std::size_t bytes =
      lanes_.capacity() * sizeof(LaneRun) + messages_.capacity() * sizeof messages_[0] +
      sources_.capacity() * sizeof sources_[0] + targets_.capacity() * sizeof targets_[0];
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const LaneRun& lane = lanes_[i];
    const std::size_t count = i < active_lanes_ ? lane.lane->steps.size() : 0;
    bytes += lane.endpoints.capacity() * sizeof lane.endpoints[0] +
             lane.published.capacity() * sizeof lane.published[0] +
             lane.next_message.capacity() * sizeof lane.next_message[0] +
             std::max(lane.step_operands.capacity(), count) * sizeof lane.step_operands[0];
  }
  return bytes - std::exchange(counted_bytes_, bytes);
}

} // namespace whorl
