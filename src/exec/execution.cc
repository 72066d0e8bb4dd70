#include "exec/execution.h"

#include <algorithm>
#include <utility>

namespace whorl {
namespace {

/// Number of repetitions that a lane runs before the next lane does. Larger: fewer switches.
/// Smaller: lanes stay closer together.
constexpr int kTurn = 64;

} // namespace

void Execution::bind(const Binding& binding, Endpoints& endpoints) {
  const bool same_lanes = binding.schedule == binding_.schedule && &endpoints == endpoints_;
  binding_ = binding;
  binding_.nontemporal_output =
      binding.nontemporal_output && binding.kernels.nontemporal_copy != nullptr;
  step_operands_known_ = false;
  large_messages_ =
      binding.map.chunk * binding.schedule->message_chunks * binding.kernels.element_size >=
      kMinSharedBytes;
  if (!same_lanes) find_lanes(endpoints);
  for (std::size_t i = 0; i < active_lanes_; ++i) lanes_[i].step_operands.clear();
}

void Execution::rebind(const std::byte* input, std::byte* output, std::byte* scratch,
                       const Fingerprint& fingerprint) {
  const bool moved =
      input != binding_.input || output != binding_.output || scratch != binding_.scratch;
  binding_.input = input;
  binding_.output = output;
  binding_.scratch = scratch;
  binding_.fingerprint = fingerprint;
  if (!step_operands_known_) {
    find_step_operands();
  } else if (moved) {
    rebase_step_operands();
  }
}

void Execution::begin() {
  heard_all_ = !binding_.hears_all_first;
  heard_lanes_ = 0;
  heard_peers_ = 0;
  first_window_ = 0;
  if (binding_.pipeline != nullptr) {
    segment_active_ = false;
    mismatch_ = {};
    binding_.pipeline->begin(binding_.map);
  } else {
    enter_lanes();
  }
}

void Execution::enter_lanes() noexcept {
  mismatch_ = {};
  failed_ = false;
  for (std::size_t i = 0; i < active_lanes_; ++i) {
    LaneRun& lane = lanes_[i];
    lane.published.clear();
    lane.window = 0;
    lane.step = 0;
    lane.ahead = 0;
    lane.ahead_sent = 0;
    lane.finished = lane.lane->steps.empty();
    if (!lane.finished) enter_step(lane);
    lane.exposed.open = lane.can_expose && large_messages_ && heard_all_;
    if (lane.exposed.open) begin_exposing(lane);
    if (trace_ != nullptr) [[unlikely]]
      lane.trace.start();
  }
}

/// Prepares the lanes for the schedule of binding_.
void Execution::find_lanes(Endpoints& endpoints) {
  endpoints_ = nullptr; // invalid until the end, should an allocation fail
  const std::vector<Lane>& program = binding_.schedule->lanes;
  active_lanes_ = program.size();
  if (lanes_.size() < active_lanes_) lanes_.resize(active_lanes_);
  std::size_t widest = 1; // a step that reduces without partners has two operands, too
  for (std::size_t i = 0; i < active_lanes_; ++i) {
    LaneRun& lane = lanes_[i];
    lane.lane = &program[i];
    std::uint32_t on_channel = 0; // lanes before this one that share its channel
    for (std::size_t k = 0; k < i; ++k) on_channel += program[k].channel == program[i].channel;
    lane.track = Trace::lanes(program[i].channel, on_channel);
    lane.endpoints.clear();
    for (const std::uint32_t peer : program[i].peers) {
      lane.endpoints.push_back(endpoints.find(peer, program[i].channel));
    }
    find_ends(lane);
    lane.can_expose = can_expose(lane);
    lane.next_message.resize(lane.endpoints.size());
    widest = std::max(widest, program[i].peers.size());
  }
  if (messages_.size() < widest) messages_.resize(widest);
  if (sources_.size() < widest + 1) sources_.resize(widest + 1);
  if (targets_.size() < widest + 1) targets_.resize(widest + 1);
  endpoints_ = &endpoints;
}

// Advances all lanes. Flattened: a step of a small message takes some hundred instructions; with a
// call for each of the functions below, a third of them would save and restore registers.
[[gnu::flatten]] Progress Execution::advance_lanes() noexcept {
  bool moved = false;
  bool complete = true;
  for (std::size_t i = 0; i < active_lanes_; ++i) {
    LaneRun& lane = lanes_[i];
    if (trace_ != nullptr) [[unlikely]]
      lane.trace.resume();
    for (int turn = 0; turn < kTurn && !lane.finished && run_step(lane); ++turn) moved = true;
    if (failed_) return Progress::kFailed;
    if (!lane.finished && binding_.map.windows > 1 && send_ahead(lane)) moved = true;
    if (trace_ != nullptr && !lane.finished) [[unlikely]]
      lane.trace.pause();
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

/// Runs the segments of the pipeline one after the other, each with advance_lanes(). A segment,
/// like an operation, ends when no peer needs its memory any more.
Progress Execution::advance_segments() noexcept {
  bool moved = false;
  for (;;) {
    if (!segment_active_) {
      StagingPipeline::Segment segment;
      const Progress next = binding_.pipeline->next(segment);
      if (next == Progress::kIdle && moved) return Progress::kAdvanced;
      if (next != Progress::kAdvanced) return next;
      binding_.map = segment.map;
      first_window_ = segment.first_window;
      binding_.input = segment.input;
      binding_.output = segment.output;
      segment_active_ = true;
      enter_lanes();
      moved = true;
    }
    const Progress progress = advance_lanes();
    if (progress == Progress::kIdle && moved) return Progress::kAdvanced;
    if (progress != Progress::kDone) return progress;
    segment_active_ = false;
    binding_.pipeline->finish();
    moved = true;
  }
}

/// Does one repetition of the current step, or as much of it as is possible. Returns whether it did
/// anything.
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

/// Receives, reduces and copies. Sets the phase to kSend if something is left to send. Returns
/// false, with nothing changed, if a message, a slot or the target is not available yet.
bool Execution::combine(LaneRun& lane, const Step& step) noexcept {
  if (!heard_all_ && step.writes_dst() && step.dst == Buffer::kOutput && !hear_all()) return false;
  if (step.receives() && !gather_messages(lane, step)) return false;
  if (step.writes_dst() && !may_overwrite(lane, step)) return false;

  int direct_sends = 0;
  if (step.sends() && !find_targets(lane, step, direct_sends)) return false;
  move(lane, step, direct_sends);
  for (int i = 0; i < direct_sends; ++i) {
    lane.endpoints[static_cast<std::size_t>(step.tx + i)]->commit(lane.bytes, binding_.fingerprint);
  }
  for (int i = 0; i < step.fan_in(); ++i) {
    lane.endpoints[static_cast<std::size_t>(step.rx + i)]->release();
  }
  if (lane.exposed.open && step.receives()) expose_recv_buffers(lane, lane.window);
  if (direct_sends < step.fan_out()) {
    lane.phase = Phase::kSend;
    lane.sent = static_cast<std::uint8_t>(direct_sends);
  }
  return true;
}

/// Finds one message of each peer of the fan in, and puts their payloads into messages_. Returns
/// whether all are there; fails if one is of another operation.
bool Execution::gather_messages(LaneRun& lane, const Step& step) noexcept {
  const int fan = step.fan_in();
  const bool whole =
      !step.reduces() && lane.dst.whole && lane.bytes > 0 && may_overwrite(lane, step);
  bool complete = true;
  messages_in_ = SourceIn::kMemory;
  for (int i = 0; i < fan; ++i) {
    const auto index = static_cast<std::size_t>(step.rx + i);
    Endpoint& peer = *lane.endpoints[index];
    if (whole && peer.traits().recv_buffers_ahead == 0) {
      peer.post_recv({lane.dst.data, lane.bytes}, binding_.fingerprint);
    }
    const Message message = peer.try_peek();
    if (!message) {
      complete = false; // go on: the other peers may need this rank to receive their messages
      continue;
    }
    if (!(message.fingerprint == binding_.fingerprint) || message.bytes != lane.bytes) {
      fail_on(lane.lane->peers[index], message.fingerprint, message.bytes, lane.bytes);
      return false;
    }
    messages_[static_cast<std::size_t>(i)] = message.data;
    if (message.in_another_cache) messages_in_ = SourceIn::kAnotherCache;
  }
  return complete;
}

void Execution::enter_step(LaneRun& lane) noexcept {
  lane.repetition = 0;
  enter_repetition(lane);
}

void Execution::enter_repetition(LaneRun& lane) noexcept {
  lane.sent = 0;
  lane.steps_fused = 1;
  if (!lane.step_operands.empty()) {
    const StepOperands& operands = lane.step_operands[lane.step];
    lane.phase = operands.phase;
    const bool fuses_with_next =
        operands.fuses_with_next && lane.published.empty() && trace_ == nullptr;
    lane.steps_fused = fuses_with_next ? 2 : 1;
    const StepOperands& target = lane.step_operands[lane.step + lane.steps_fused - 1];
    lane.src.assign(operands.src);
    lane.dst.assign(target.dst);
    lane.bytes = operands.bytes;
    return;
  }
  const Step& step = lane.lane->steps[lane.step];
  lane.phase = first_phase(step);
  find_operands(lane, step);
}

/// Returns kSend for a plain send, which has nothing to combine.
Execution::Phase Execution::first_phase(const Step& step) noexcept {
  const bool only_sends = step.sends() && !step.receives() && !step.copies() && !step.reduces();
  return only_sends ? Phase::kSend : Phase::kCombine;
}

void Execution::finish_repetition(LaneRun& lane) noexcept {
  if (trace_ != nullptr) [[unlikely]]
    trace_step(lane);
  const std::vector<Step>& steps = lane.lane->steps;
  if (++lane.repetition < steps[lane.step].repeat) {
    enter_repetition(lane);
    return;
  }
  if ((lane.step += lane.steps_fused) == steps.size()) {
    if (++lane.window == binding_.map.windows) {
      lane.finished = true;
      return;
    }
    const std::uint32_t sent_ahead = std::exchange(lane.ahead, 0);
    for (lane.step = 0; trace_ != nullptr && lane.step < sent_ahead; ++lane.step) {
      enter_step(lane);
      trace_step(lane); // the step was done ahead: recorded at its usual place, with no duration
    }
    lane.step = sent_ahead;
    enter_step(lane);
    lane.sent = std::exchange(lane.ahead_sent, std::uint8_t{0});
    if (lane.exposed.open) expose_recv_buffers(lane, lane.window);
    return;
  }
  enter_step(lane);
}

/// Returns whether the lane that a kWait names has finished the step that it names in this window.
bool Execution::step_finished(const LaneRun& waiter, const Step& step) const noexcept {
  const LaneRun& other = lanes_[step.tx];
  if (other.finished || other.window > waiter.window) return true;
  return other.window == waiter.window && other.step > step.rx;
}

void Execution::forget_released(LaneRun& lane) noexcept {
  std::erase_if(lane.published,
                [](const Publication& p) { return p.endpoint->released() >= p.number; });
}

/// Returns whether no peer still reads the memory that the step is about to overwrite.
bool Execution::may_overwrite(LaneRun& lane, const Step& step) noexcept {
  if (lane.published.empty()) return true;
  // A copy of a chunk onto itself (in place) changes nothing.
  const bool onto_itself = step.ops == kCopy && lane.src.data == lane.dst.data;
  if (onto_itself) return true;
  forget_released(lane);
  for (std::uint32_t k = 0; k < step.count && !lane.published.empty(); ++k) {
    const std::span<std::byte> target = memory(step.dst, lane.window, lane.dst.chunk + k);
    const std::byte* const end = target.data() + target.size();
    for (const Publication& p : lane.published) {
      if (target.data() < p.end && p.begin < end) return false;
    }
  }
  return true;
}

/// Returns whether the peer behind `endpoint` needs no further calls for what a finished lane has
/// sent and received.
bool Execution::settled(const LaneRun& lane, Endpoint& endpoint) noexcept {
  return !endpoint.traits().queues_sends ||
         (lane.last_sends == 0 ? endpoint.acknowledged() : endpoint.flushed());
}

/// Returns whether no message that a finished lane has sent needs this rank any more.
bool Execution::drained(LaneRun& lane) noexcept {
  if (!lane.published.empty()) forget_released(lane);
  return lane.published.empty() &&
         std::all_of(lane.endpoints.begin(), lane.endpoints.end(),
                     [&](Endpoint* endpoint) { return settled(lane, *endpoint); });
}

} // namespace whorl
