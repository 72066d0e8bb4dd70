// Sending from memory in an Execution: input, and results where they can be sent from.
#include "exec/execution.h"

namespace whorl {

/// Sends from memory (the source of a plain send, the target of a copying step) to the peers of the
/// fan that have not been sent to yet. Returns whether it sent to any. Flattened, see
/// advance_lanes().
[[gnu::flatten]] bool Execution::send_from_memory(LaneRun& lane, const Step& step) noexcept {
  const Outgoing message{.buffer = step.copies() ? step.dst : step.src,
                         .window = lane.window,
                         .chunks = step.copies() ? lane.dst : lane.src,
                         .bytes = lane.bytes};
  const bool moved = send_to_fan(lane, step, message, lane.sent);
  if (lane.sent < step.fan_out()) return moved;
  finish_repetition(lane);
  return true;
}

/// Sends a message to the peers of the step's fan from number `sent` on, and counts them in `sent`.
/// Returns whether it sent to any.
bool Execution::send_to_fan(LaneRun& lane, const Step& step, const Outgoing& message,
                            std::uint8_t& sent) noexcept {
  const std::span<std::byte> source(message.chunks.data, message.bytes);
  bool moved = false;
  while (sent < step.fan_out()) {
    Endpoint& peer = *lane.endpoints[static_cast<std::size_t>(step.tx + sent)];
    DescriptorSend published = DescriptorSend::kUnreachable;
    if (message.chunks.whole && !scales(message.buffer) && peer.can_send_descriptor(source)) {
      published = send_descriptor(lane, peer, source);
    }
    if (published == DescriptorSend::kBusy) return moved;
    if (published == DescriptorSend::kUnreachable) {
      Target target = find_exposed_buffer(peer, message.bytes);
      if (target.data == nullptr) target = find_slot(peer, message.bytes);
      if (target.data == nullptr) return moved;
      copy_chunks(step, message, target);
      peer.commit(message.bytes, binding_.fingerprint);
    }
    ++sent;
    moved = true;
  }
  return moved;
}

/// Sends a source without a copy and records it in `published`. Without memory for that record the
/// message goes through a slot. Kept out of the code that small messages run through.
DescriptorSend Execution::send_descriptor(LaneRun& lane, Endpoint& peer,
                                          std::span<const std::byte> source) noexcept {
  std::vector<Publication>& records = lane.published;
  if (records.size() == records.capacity()) forget_released(lane);
  if (records.size() == records.capacity()) {
    const Status grown = without_exceptions([&] {
      records.reserve(2 * records.capacity() + 1);
      return Status();
    });
    if (!grown.ok()) return DescriptorSend::kUnreachable;
  }
  const DescriptorSend published = peer.try_send_descriptor(source, binding_.fingerprint);
  if (published != DescriptorSend::kSent) return published;
  records.push_back({.endpoint = &peer,
                     .number = peer.sent(),
                     .begin = source.data(),
                     .end = source.data() + source.size()});
  return published;
}

/// Finds the steps that send_ahead() is about.
void Execution::find_ends(LaneRun& lane) noexcept {
  const std::vector<Step>& steps = lane.lane->steps;
  lane.leading = 0;
  while (lane.leading < steps.size() && steps[lane.leading].ops == kSend &&
         steps[lane.leading].src == Buffer::kInput && steps[lane.leading].repeat == 1) {
    ++lane.leading;
  }
  lane.last_sends = static_cast<std::uint32_t>(steps.size());
  while (lane.last_sends > 0 && !steps[lane.last_sends - 1].sends()) --lane.last_sends;
}

/// Sends the first messages of the next window while the lane waits for the last ones of this
/// window, so that links do not fall idle between windows. The order of messages in a FIFO remains,
/// because the lane sends nothing else in this window. A send that finds no slot is left to the
/// next window; no step of this window writes the next window's input, also in place.
///
///     window 0: send A0 │ receive, reduce, send B0 │ receive B0' ┐ here A1 goes
///     window 1:                                                  └ send A1 │ receive, …
bool Execution::send_ahead(LaneRun& lane) noexcept {
  if (lane.step < lane.last_sends || lane.window + 1 >= binding_.map.windows) return false;
  if (lane.exposed.open)
    expose_recv_buffers(
        lane, lane.window + 1); // peers may have the result as soon as they have the input
  bool moved = false;
  while (lane.ahead < lane.leading) {
    const Step& step = lane.lane->steps[lane.ahead];
    Outgoing message{.buffer = Buffer::kInput, .window = lane.window + 1, .chunks = {}, .bytes = 0};
    message.bytes = find(message.chunks, message.buffer, message.window, step.chunk, step.count);
    moved = send_to_fan(lane, step, message, lane.ahead_sent) || moved;
    if (lane.ahead_sent < step.fan_out()) break;
    ++lane.ahead;
    lane.ahead_sent = 0;
  }
  return moved;
}

/// Copies a message to its target.
void Execution::copy_chunks(const Step& step, const Outgoing& message, Target target) noexcept {
  const bool scaled = scales(message.buffer);
  const auto copy = [&](const std::byte* source, std::size_t bytes) {
    if (scaled) [[unlikely]] {
      copy_scaled_into(binding_.kernels, source, {&target, 1}, bytes);
    } else {
      copy_into(binding_.kernels, source, {&target, 1}, bytes);
    }
  };
  if (message.chunks.whole) {
    if (message.bytes > 0) copy(message.chunks.data, message.bytes);
  } else {
    for (std::uint32_t k = 0; k < step.count; ++k) {
      const std::span<std::byte> source =
          memory(message.buffer, message.window, message.chunks.chunk + k);
      if (source.empty()) continue;
      copy(source.data(), source.size());
      target.data += source.size();
    }
  }
  if (target.nontemporal) nontemporal_fence();
}

} // namespace whorl
