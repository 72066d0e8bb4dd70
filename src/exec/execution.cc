#include "exec/execution.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace whorl {
namespace {

/// Repetitions that a lane runs before the next lane gets its turn. Larger: fewer switches.
/// Smaller: lanes stay closer together.
constexpr int kTurn = 64;

} // namespace

void Execution::start(const Binding& binding, Endpoints& endpoints) {
  binding_ = binding;
  mismatch_ = {};
  failed_ = false;
  const std::vector<Lane>& program = binding.schedule->lanes;
  active_lanes_ = program.size();
  if (lanes_.size() < active_lanes_) lanes_.resize(active_lanes_);
  std::size_t widest = 0;
  for (std::size_t i = 0; i < active_lanes_; ++i) {
    LaneRun& lane = lanes_[i];
    lane.lane = &program[i];
    lane.endpoints.clear();
    for (const std::uint32_t peer : program[i].peers) {
      lane.endpoints.push_back(endpoints.find(peer, program[i].channel));
    }
    lane.published.clear();
    find_ends(lane);
    lane.window = 0;
    lane.step = 0;
    lane.finished = program[i].steps.empty();
    widest = std::max(widest, program[i].peers.size());
    if (!lane.finished) enter_step(lane);
  }
  if (messages_.size() < widest) messages_.resize(widest);
  if (sources_.size() < widest + 1) sources_.resize(widest + 1);
}

Progress Execution::advance() noexcept {
  bool moved = false;
  bool complete = true;
  for (std::size_t i = 0; i < active_lanes_; ++i) {
    LaneRun& lane = lanes_[i];
    for (int turn = 0; turn < kTurn && !lane.finished && run_step(lane); ++turn) moved = true;
    if (failed_) return Progress::kFailed;
    if (!lane.finished && send_ahead(lane)) moved = true;
    complete = complete && lane.finished && drained(lane);
  }
  if (complete) return Progress::kDone;
  if (moved) return Progress::kAdvanced;
  for (std::size_t i = 0; i < active_lanes_; ++i) {
    for (Endpoint* const endpoint : lanes_[i].endpoints) {
      switch (endpoint->progress()) {
        case Progress::kFailed:
          return Progress::kFailed;
        case Progress::kAdvanced:
        case Progress::kDone:
          moved = true;
          break;
        case Progress::kIdle:
          break;
      }
    }
  }
  return moved ? Progress::kAdvanced : Progress::kIdle;
}

/// Does one repetition of the current step, or as much of it as is possible. Returns whether
/// anything was done.
bool Execution::run_step(LaneRun& lane) noexcept {
  const Step& step = lane.lane->steps[lane.step];
  if (step.waits()) {
    if (!step_finished(lane, step)) return false;
    finish_repetition(lane);
    return true;
  }
  bool moved = false;
  if (lane.phase == Phase::kCombine) {
    if (!combine(lane, step)) return false;
    moved = true;
  }
  if (lane.phase == Phase::kSend) return send_from_memory(lane, step) || moved;
  finish_repetition(lane);
  return moved;
}

/// Receives, reduces and copies. Afterwards the phase says whether something is left to send.
/// Returns false, with nothing changed, where a message, a slot or the target is not available yet.
bool Execution::combine(LaneRun& lane, const Step& step) noexcept {
  if (step.receives() && !gather_messages(lane, step)) return false;
  if (step.writes_dst() && !may_overwrite(lane, step)) return false;

  // A single consumer gets the result written straight into its slot. Where the result lies in
  // memory that the consumer can read, or goes to several, it is sent from there afterwards.
  std::span<std::byte> slot;
  bool send_later = step.sends() && step.copies();
  if (step.sends() && step.fan_out() == 1) {
    Endpoint& peer = *lane.endpoints[step.tx];
    const std::span<std::byte> target =
        step.copies() ? contiguous(step.dst, lane.window, lane.dst_chunk, step.count)
                      : std::span<std::byte>();
    if (target.data() == nullptr || !peer.can_publish(target)) {
      slot = peer.try_reserve();
      if (slot.empty()) return false;
      send_later = false;
    }
  }
  move(lane, step, slot);
  if (!slot.empty()) lane.endpoints[step.tx]->commit(lane.bytes, binding_.fingerprint);
  for (int i = 0; i < step.fan_in(); ++i) {
    lane.endpoints[static_cast<std::size_t>(step.rx + i)]->release();
  }
  if (send_later) {
    lane.phase = Phase::kSend;
    lane.sent = 0;
  }
  return true;
}

/// Has one message of each peer of the fan in messages_, all of this operation.
bool Execution::gather_messages(LaneRun& lane, const Step& step) noexcept {
  const int fan = step.fan_in();
  const bool whole = !step.reduces() && may_overwrite(lane, step);
  bool complete = true;
  for (int i = 0; i < fan; ++i) {
    const auto index = static_cast<std::size_t>(step.rx + i);
    Endpoint& peer = *lane.endpoints[index];
    if (whole) {
      const std::span<std::byte> target =
          contiguous(step.dst, lane.window, lane.dst_chunk, step.count);
      if (target.data() != nullptr) peer.offer(target, binding_.fingerprint);
    }
    const Message message = peer.try_peek();
    if (!message) {
      complete = false; // but the others may need this side to receive them
      continue;
    }
    if (!(message.fingerprint == binding_.fingerprint) || message.bytes != lane.bytes) {
      mismatch_ = {.peer = static_cast<int>(lane.lane->peers[index]),
                   .theirs = message.fingerprint,
                   .bytes = message.bytes,
                   .expected_bytes = lane.bytes};
      failed_ = true;
      return false;
    }
    messages_[static_cast<std::size_t>(i)] = message;
  }
  return complete;
}

/// Moves one message's worth of data: the operands are the step's source chunks and messages_, the
/// targets its destination chunks and `slot`.
void Execution::move(const LaneRun& lane, const Step& step, std::span<std::byte> slot) noexcept {
  const int fan = step.fan_in();
  const int divisor = step.final() ? binding_.divisor : 1;
  const auto self = static_cast<std::uint32_t>(binding_.schedule->rank);
  // Pieces are single chunks, or all of them at once where they lie side by side in memory.
  const auto one_piece = [&](Buffer buffer, std::uint32_t chunk) {
    return contiguous(buffer, lane.window, chunk, step.count).data() != nullptr;
  };
  const bool whole = (!step.reads_src() || one_piece(step.src, lane.chunk)) &&
                     (!step.writes_dst() || one_piece(step.dst, lane.dst_chunk));
  const std::uint32_t pieces = whole ? 1 : step.count;
  std::size_t offset = 0;
  for (std::uint32_t k = 0; k < pieces; ++k) {
    const Buffer sized = step.reads_src() ? step.src : step.dst;
    const std::uint32_t sized_chunk = (step.reads_src() ? lane.chunk : lane.dst_chunk) + k;
    const std::size_t bytes = whole ? lane.bytes : chunk_bytes(sized, lane.window, sized_chunk);
    if (bytes == 0) continue;

    std::array<void*, 2> targets{};
    std::size_t target_count = 0;
    std::byte* const dst =
        step.writes_dst() ? address(step.dst, lane.window, lane.dst_chunk + k) : nullptr;
    if (dst != nullptr) targets[target_count++] = dst;
    if (!slot.empty()) targets[target_count++] = slot.data() + offset;

    if (step.reduces()) {
      const std::byte* const own = address(step.src, lane.window, lane.chunk + k);
      std::size_t operands = 0;
      if (fan == 0) { // local: d = d ⊕ s
        sources_[operands++] = dst;
        sources_[operands++] = own;
      } else {
        bool own_placed = false;
        for (int i = 0; i < fan; ++i) {
          const auto index = static_cast<std::size_t>(step.rx + i);
          if (!own_placed && lane.lane->peers[index] > self) {
            sources_[operands++] = own;
            own_placed = true;
          }
          sources_[operands++] = messages_[static_cast<std::size_t>(i)].data + offset;
        }
        if (!own_placed) sources_[operands++] = own;
      }
      binding_.reduce({sources_.data(), operands}, {targets.data(), target_count},
                      bytes / binding_.element_size, divisor);
    } else {
      const std::byte* const source =
          fan == 0 ? address(step.src, lane.window, lane.chunk + k) : messages_[0].data + offset;
      for (std::size_t t = 0; t < target_count; ++t) {
        if (targets[t] != source) std::memmove(targets[t], source, bytes);
      }
    }
    offset += bytes;
  }
}

/// Sends what lies in memory (the source of a plain send, the target of a copying step) to the
/// peers of the fan that have not got it yet. Returns whether any got it.
bool Execution::send_from_memory(LaneRun& lane, const Step& step) noexcept {
  const Outgoing message{.buffer = step.copies() ? step.dst : step.src,
                         .window = lane.window,
                         .chunk = step.copies() ? lane.dst_chunk : lane.chunk,
                         .bytes = lane.bytes};
  const bool moved = send_to_fan(lane, step, message, lane.sent);
  if (lane.sent < step.fan_out()) return moved;
  finish_repetition(lane);
  return true;
}

/// Sends a message to the peers of the step's fan from number `sent` on, and counts them.
bool Execution::send_to_fan(LaneRun& lane, const Step& step, const Outgoing& message,
                            std::uint8_t& sent) noexcept {
  const std::span<std::byte> source =
      contiguous(message.buffer, message.window, message.chunk, step.count);
  bool moved = false;
  while (sent < step.fan_out()) {
    Endpoint& peer = *lane.endpoints[static_cast<std::size_t>(step.tx + sent)];
    Publish published = Publish::kUnreachable;
    if (source.data() != nullptr && peer.can_publish(source)) {
      published = peer.try_publish(source, binding_.fingerprint);
    }
    if (published == Publish::kBusy) return moved;
    if (published == Publish::kSent) {
      lane.published.push_back({.endpoint = &peer,
                                .number = peer.sent(),
                                .begin = source.data(),
                                .end = source.data() + source.size()});
    } else {
      const std::span<std::byte> slot = peer.try_reserve();
      if (slot.empty()) return moved;
      std::size_t offset = 0;
      for (std::uint32_t k = 0; k < step.count; ++k) {
        const std::size_t bytes = chunk_bytes(message.buffer, message.window, message.chunk + k);
        if (bytes > 0) {
          std::memcpy(slot.data() + offset,
                      address(message.buffer, message.window, message.chunk + k), bytes);
        }
        offset += bytes;
      }
      peer.commit(message.bytes, binding_.fingerprint);
    }
    ++sent;
    moved = true;
  }
  return moved;
}

/// Finds the steps that send_ahead() is about.
void Execution::find_ends(LaneRun& lane) noexcept {
  const std::vector<Step>& steps = lane.lane->steps;
  lane.ahead = 0;
  lane.ahead_sent = 0;
  lane.leading = 0;
  while (lane.leading < steps.size() && steps[lane.leading].ops == kSend &&
         steps[lane.leading].src == Buffer::kInput && steps[lane.leading].repeat == 1) {
    ++lane.leading;
  }
  lane.last_sends = static_cast<std::uint32_t>(steps.size());
  while (lane.last_sends > 0 && !steps[lane.last_sends - 1].sends()) --lane.last_sends;
}

/// While a lane waits for the last messages of a window, sends what the next window begins with, so
/// that links do not fall idle between windows. No FIFO sees another order of messages, because
/// nothing else of this window is sent any more. A send that finds no slot is left to the next
/// window, and input of that window is written by nobody in this one, also in place.
///
///     window 0: send A0 │ receive, reduce, send B0 │ receive B0' ┐ here A1 goes
///     window 1:                                                  └ send A1 │ receive, …
bool Execution::send_ahead(LaneRun& lane) noexcept {
  if (lane.step < lane.last_sends || lane.window + 1 >= binding_.map.windows) return false;
  bool moved = false;
  while (lane.ahead < lane.leading) {
    const Step& step = lane.lane->steps[lane.ahead];
    Outgoing message{
        .buffer = Buffer::kInput, .window = lane.window + 1, .chunk = step.chunk, .bytes = 0};
    for (std::uint32_t k = 0; k < step.count; ++k) {
      message.bytes += chunk_bytes(message.buffer, message.window, message.chunk + k);
    }
    moved = send_to_fan(lane, step, message, lane.ahead_sent) || moved;
    if (lane.ahead_sent < step.fan_out()) break;
    ++lane.ahead;
    lane.ahead_sent = 0;
  }
  return moved;
}

void Execution::enter_step(LaneRun& lane) noexcept {
  lane.repetition = 0;
  enter_repetition(lane);
}

void Execution::enter_repetition(LaneRun& lane) noexcept {
  const Step& step = lane.lane->steps[lane.step];
  // A plain send has nothing to combine.
  const bool only_sends = step.sends() && !step.receives() && !step.copies() && !step.reduces();
  lane.phase = only_sends ? Phase::kSend : Phase::kCombine;
  lane.sent = 0;
  if (step.waits()) return;
  const auto at = [&](Buffer buffer, std::uint16_t first) -> std::uint16_t {
    const int chunks = binding_.schedule->chunks(buffer);
    return chunks == 0 ? std::uint16_t{0} : chunk_at(first, step.stride, lane.repetition, chunks);
  };
  lane.chunk = at(step.src, step.chunk);
  lane.dst_chunk = at(step.dst, step.dst_chunk);
  const Buffer sized = step.reads_src() ? step.src : step.dst;
  const std::uint32_t first = step.reads_src() ? lane.chunk : lane.dst_chunk;
  lane.bytes = 0;
  for (std::uint32_t k = 0; k < step.count; ++k) {
    lane.bytes += chunk_bytes(sized, lane.window, first + k);
  }
}

void Execution::finish_repetition(LaneRun& lane) noexcept {
  const std::vector<Step>& steps = lane.lane->steps;
  if (++lane.repetition < steps[lane.step].repeat) {
    enter_repetition(lane);
    return;
  }
  if (++lane.step == steps.size()) {
    if (++lane.window == binding_.map.windows) {
      lane.finished = true;
      return;
    }
    lane.step = std::exchange(lane.ahead, 0);
    enter_step(lane);
    lane.sent = std::exchange(lane.ahead_sent, std::uint8_t{0});
    return;
  }
  enter_step(lane);
}

/// Whether the lane that a kWait names has finished the step that it names in this window.
bool Execution::step_finished(const LaneRun& waiter, const Step& step) const noexcept {
  const LaneRun& other = lanes_[step.tx];
  if (other.finished || other.window > waiter.window) return true;
  return other.window == waiter.window && other.step > step.rx;
}

/// Whether no peer is still reading what the step is about to overwrite.
bool Execution::may_overwrite(LaneRun& lane, const Step& step) noexcept {
  if (lane.published.empty()) return true;
  // In place, a copy of a chunk onto itself changes nothing.
  const bool onto_itself = step.ops == kCopy && address(step.src, lane.window, lane.chunk) ==
                                                    address(step.dst, lane.window, lane.dst_chunk);
  if (onto_itself) return true;
  std::erase_if(lane.published,
                [](const Publication& p) { return p.endpoint->released() >= p.number; });
  for (std::uint32_t k = 0; k < step.count && !lane.published.empty(); ++k) {
    const std::byte* const begin = address(step.dst, lane.window, lane.dst_chunk + k);
    const std::byte* const end = begin + chunk_bytes(step.dst, lane.window, lane.dst_chunk + k);
    for (const Publication& p : lane.published) {
      if (begin < p.end && p.begin < end) return false;
    }
  }
  return true;
}

/// Whether nothing that a finished lane has sent needs this side any more.
bool Execution::drained(LaneRun& lane) noexcept {
  std::erase_if(lane.published,
                [](const Publication& p) { return p.endpoint->released() >= p.number; });
  return lane.published.empty() &&
         std::all_of(lane.endpoints.begin(), lane.endpoints.end(),
                     [](Endpoint* endpoint) { return endpoint->flushed(); });
}

std::byte* Execution::address(Buffer buffer, std::size_t window,
                              std::uint32_t chunk) const noexcept {
  switch (buffer) {
    case Buffer::kInput: // never written: the verifier allows kInput as a source only
      return const_cast<std::byte*>(binding_.input) +
             binding_.map.begin(window, chunk) * binding_.element_size;
    case Buffer::kOutput:
      return binding_.output + binding_.map.begin(window, chunk) * binding_.element_size;
    case Buffer::kScratch:
      break;
  }
  return binding_.scratch + chunk * binding_.map.chunk * binding_.element_size;
}

std::size_t Execution::chunk_bytes(Buffer buffer, std::size_t window,
                                   std::uint32_t chunk) const noexcept {
  const std::uint32_t in_block =
      buffer == Buffer::kScratch ? binding_.schedule->scratch[chunk] : chunk;
  return binding_.map.size(window, in_block) * binding_.element_size;
}

std::span<std::byte> Execution::contiguous(Buffer buffer, std::size_t window, std::uint32_t chunk,
                                           std::uint32_t count) const noexcept {
  std::byte* const begin = address(buffer, window, chunk);
  const std::byte* expected = begin;
  for (std::uint32_t k = 0; k < count; ++k) {
    const std::size_t bytes = chunk_bytes(buffer, window, chunk + k);
    if (bytes == 0) continue;
    if (address(buffer, window, chunk + k) != expected) return {};
    expected += bytes;
  }
  if (expected == begin) return {};
  return {begin, static_cast<std::size_t>(expected - begin)};
}

/// Whether the peer behind `endpoint` still reads a source of this lane.
bool Execution::publishes_to(const LaneRun& lane, Endpoint& endpoint) noexcept {
  return std::any_of(lane.published.begin(), lane.published.end(), [&](const Publication& p) {
    return p.endpoint == &endpoint && endpoint.released() < p.number;
  });
}

Execution::Waiting Execution::waiting() const noexcept {
  for (std::size_t i = 0; i < active_lanes_; ++i) {
    const LaneRun& lane = lanes_[i];
    Waiting waiting{.peer = -1,
                    .phase = "releasing sent buffers",
                    .window = lane.window,
                    .channel = lane.lane->channel,
                    .step = static_cast<int>(lane.step)};
    if (lane.finished) {
      for (std::size_t p = 0; p < lane.endpoints.size() && waiting.peer < 0; ++p) {
        if (publishes_to(lane, *lane.endpoints[p]) || !lane.endpoints[p]->flushed()) {
          waiting.peer = static_cast<int>(lane.lane->peers[p]);
        }
      }
      if (waiting.peer < 0) continue;
      return waiting;
    }
    const Step& step = lane.lane->steps[lane.step];
    if (step.waits()) continue; // the lane that is waited for will be found
    if (lane.phase == Phase::kSend) {
      waiting.phase = "sending";
      waiting.peer =
          static_cast<int>(lane.lane->peers[static_cast<std::size_t>(step.tx + lane.sent)]);
      return waiting;
    }
    for (int f = 0; f < step.fan_in(); ++f) {
      const auto index = static_cast<std::size_t>(step.rx + f);
      if (!lane.endpoints[index]->try_peek()) {
        waiting.phase = "receiving";
        waiting.peer = static_cast<int>(lane.lane->peers[index]);
        return waiting;
      }
    }
    for (std::size_t p = 0; p < lane.endpoints.size() && waiting.peer < 0; ++p) {
      if (publishes_to(lane, *lane.endpoints[p]))
        waiting.peer = static_cast<int>(lane.lane->peers[p]);
    }
    if (waiting.peer < 0 && step.sends()) {
      waiting.phase = "sending";
      waiting.peer = static_cast<int>(lane.lane->peers[step.tx]);
    }
    return waiting;
  }
  return {};
}

} // namespace whorl
