// Receiving, reducing and copying in the steps of an Execution, and the targets of the results.
#include "exec/execution.h"

#include <algorithm>

namespace whorl {

/// Returns the buffer that `peer` has exposed for its next message; no data if it has exposed none.
Target Execution::find_exposed_buffer(Endpoint& peer, std::size_t bytes) const noexcept {
  if (bytes < kMinSharedBytes) return {};
  const std::span<std::byte> buffer = peer.try_put(bytes, binding_.fingerprint);
  if (buffer.empty() || !may_bypass_caches(bytes)) return {buffer.data(), false};
  const StoreHint hint = peer.store_hint(bytes);
  return {buffer.data(), hint.nontemporal || (binding_.nontemporal_output && !hint.on_trial)};
}

/// Returns the peer's slot for a message; no data if none is free.
Target Execution::find_slot(Endpoint& peer, std::size_t bytes) const noexcept {
  const std::span<std::byte> slot = peer.try_reserve(bytes);
  return {slot.data(), may_bypass_caches(bytes) && peer.store_hint(bytes).nontemporal};
}

/// Puts into targets_, after the step's own target, where the result goes directly: the exposed
/// buffer or the slot of each of the first `direct_sends` peers of the fan. The other peers are
/// sent to from the step's target afterwards: those that can read it in place, and those without a
/// free slot. Returns false if the step has to wait for a slot.
bool Execution::find_targets(LaneRun& lane, const Step& step, int& direct_sends) noexcept {
  for (direct_sends = 0; direct_sends < step.fan_out(); ++direct_sends) {
    Endpoint& peer = *lane.endpoints[static_cast<std::size_t>(step.tx + direct_sends)];
    Target& target = targets_[static_cast<std::size_t>(direct_sends) + 1];
    target = find_exposed_buffer(peer, lane.bytes);
    if (target.data != nullptr) continue;
    const bool contiguous = step.copies() && lane.dst.whole;
    if (contiguous && peer.can_send_descriptor({lane.dst.data, lane.bytes})) return true;
    target = find_slot(peer, lane.bytes);
    if (target.data == nullptr) return step.fan_out() > 1;
  }
  return true;
}

/// Moves the data of one message: the operands are the step's source chunks and messages_, the
/// targets its destination chunks and the `direct_sends` ones of find_targets(). Flattened, see
/// advance_lanes().
[[gnu::flatten]] void Execution::move(const LaneRun& lane, const Step& step,
                                      int direct_sends) noexcept {
  const std::size_t first = step.writes_dst() ? 0 : 1;
  const std::span<Target> targets(targets_.data() + first,
                                  static_cast<std::size_t>(direct_sends) + 1 - first);
  if (first == 0) {
    targets[0] = {lane.dst.data, binding_.nontemporal_output && step.dst == Buffer::kOutput};
  }
  const bool nontemporal = std::any_of(targets.begin(), targets.end(),
                                       [](const Target& target) { return target.nontemporal; });
  if ((lane.src.whole || !step.reads_src()) && (lane.dst.whole || !step.writes_dst())) {
    move_part(lane, step, lane.src.data, targets, {.offset = 0, .bytes = lane.bytes});
  } else {
    ContiguousPart part;
    for (std::uint32_t k = 0; k < step.count; ++k) {
      const std::span<std::byte> from = step.reads_src()
                                            ? memory(step.src, lane.window, lane.src.chunk + k)
                                            : std::span<std::byte>();
      const std::span<std::byte> to = step.writes_dst()
                                          ? memory(step.dst, lane.window, lane.dst.chunk + k)
                                          : std::span<std::byte>();
      if (step.writes_dst()) targets[0].data = to.data();
      part.bytes = step.reads_src() ? from.size() : to.size();
      move_part(lane, step, from.data(), targets, part);
      part.offset += part.bytes;
      for (Target& target : targets) target.data += part.bytes; // messages are contiguous
    }
  }
  if (nontemporal) nontemporal_fence();
}

/// Moves one part of a message, which is contiguous in every operand and target.
void Execution::move_part(const LaneRun& lane, const Step& step, const std::byte* own,
                          std::span<const Target> targets, const ContiguousPart& part) noexcept {
  if (part.bytes == 0) return;
  if (step.reduces()) {
    std::size_t own_at = 0;
    const std::size_t operands =
        list_operands(lane, step, own, targets[0].data, part.offset, own_at);
    const std::span<const void*> sources(sources_.data(), operands);
    const Averaging averaging = step.final() ? binding_.kernels.averaging : Averaging();
    if (scales(step.src)) [[unlikely]] {
      reduce_scaled_into(binding_.kernels, sources, own_at, targets, part.bytes, averaging);
    } else {
      reduce_into(binding_.kernels, sources, targets, part.bytes, averaging);
    }
  } else if (!step.receives() && scales(step.src)) [[unlikely]] {
    copy_scaled_into(binding_.kernels, own, targets, part.bytes);
  } else if (step.receives()) {
    copy_into(binding_.kernels, messages_[0] + part.offset, targets, part.bytes, messages_in_);
  } else {
    copy_into(binding_.kernels, own, targets, part.bytes);
  }
}

/// Puts the operands of a reducing step into sources_, in ascending order of rank, and the place of
/// the rank's own operand into `own_at`. Returns the number of operands.
std::size_t Execution::list_operands(const LaneRun& lane, const Step& step, const std::byte* own,
                                     const std::byte* dst, std::size_t offset,
                                     std::size_t& own_at) noexcept {
  const int fan = step.fan_in();
  if (fan == 0) { // local: d = d ⊕ s
    sources_[0] = dst;
    sources_[1] = own;
    own_at = 1;
    return 2;
  }
  const auto self = static_cast<std::uint32_t>(binding_.schedule->rank);
  std::size_t operands = 0;
  bool own_added = false;
  for (int i = 0; i < fan; ++i) {
    const auto index = static_cast<std::size_t>(step.rx + i);
    if (!own_added && lane.lane->peers[index] > self) {
      own_at = operands;
      sources_[operands++] = own;
      own_added = true;
    }
    sources_[operands++] = messages_[static_cast<std::size_t>(i)] + offset;
  }
  if (!own_added) {
    own_at = operands;
    sources_[operands++] = own;
  }
  return operands;
}

} // namespace whorl
