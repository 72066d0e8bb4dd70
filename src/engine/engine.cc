#include "engine/engine.h"

#include <fmt/core.h>

#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/probes.h"

namespace whorl {
namespace {

/// Describes a transfer without its request, which ends with its call: that call may have failed.
std::string describe_transfer(bool sends, int peer, const Fingerprint& fingerprint) {
  return describe(Request{.collective = sends ? Collective::kSend : Collective::kRecv,
                          .type = fingerprint.data_type(),
                          .peer = peer,
                          .count = fingerprint.count()});
}

} // namespace

Engine::Engine(Config config)
    : config_(std::move(config)),
      plans_(*config_.membership, config_.shape, config_.verify),
      transfers_(2 * static_cast<std::size_t>(config_.membership->nranks)),
      sent_(static_cast<std::size_t>(config_.membership->nranks)),
      received_(static_cast<std::size_t>(config_.membership->nranks)) {
  endpoints_.table = &config_.endpoints;
  watched_ = config_.trace != nullptr || config_.observer != nullptr;
  for (CachedCall& cached : cached_calls_) cached.execution.trace_to(config_.trace, 0);
  reduce_scatterv_call_.execution.trace_to(config_.trace, 0);
  all_gatherv_call_.execution.trace_to(config_.trace, 0);
  meeting_.execution.trace_to(config_.trace, 0);
}

Status Engine::start(std::span<const Request> batch) {
  batch_ = batch;
  next_ = 0;
  collective_active_ = false;
  failure_ = {};
  active_transfers_.clear();
  any_.clear();
  next_any_ = 0;
  any_queue_ = nullptr;
  if (batch.size() == 1 && !batch[0].point_to_point()) return {};
  Status status = queue_transfers(batch);
  if (!status.ok()) { // the batch has sent nothing
    active_transfers_.clear();
    any_.clear();
  }
  return status;
}

/// Makes the scratch memory large enough, within the budget.
Status Engine::reserve(std::size_t bytes, const Request& request) {
  if (bytes <= scratch_.bytes()) return {};
  if (bytes > config_.workspace_bytes) {
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("{} on rank {} needs a workspace of {} bytes, and the memory budget leaves {}; "
                    "raise WHORL_MEMORY_BUDGET or config.memoryBudget, or pass smaller vectors",
                    describe(request), config_.membership->rank, bytes, config_.workspace_bytes));
  }
  scratch_.reserve(bytes);
  workspace_bytes_.store(bytes, std::memory_order_relaxed);
  return {};
}

/// Prepares everything of a call that does not depend on the buffers.
Status Engine::prepare(CachedCall& cached, const Request& request) {
  cached.valid = false;
  const Membership& members = *config_.membership;
  cached.input_bytes = input_bytes(request, members.rank, members.nranks);
  cached.output_bytes = output_bytes(request, members.rank, members.nranks);
  const auto division = divide(request);
  if (!division.ok()) return division.status();
  cached.bytes = division->bytes;
  cached.plan = division->plan;
  cached.map = division->map;
  const Algorithm& algorithm = all_algorithms()[cached.plan->algorithm];
  cached.kernels =
      kernels_of(request.type, request.op, members.nranks, algorithm.at_once, default_simd());
  cached.nontemporal = cached.bytes >= config_.nontemporal_bytes;
  cached.scratch_bytes =
      cached.plan->schedule.scratch.size() * cached.map.chunk * size_of(request.type);
  cached.agreement =
      members.nranks == 1 ? Agreement::kByData : agreement_of(algorithm, cached.bytes);
  const bool writes = cached.output_bytes > 0;
  if (cached.agreement == Agreement::kByCopy && !writes) cached.agreement = Agreement::kByData;
  if (cached.agreement == Agreement::kByCopy) {
    cached.result_at = round_up(cached.scratch_bytes, 64); // as Binding::scratch is aligned
    const std::size_t needed = cached.result_at + cached.output_bytes;
    if (needed <= config_.workspace_bytes && (request.table == nullptr || request.table->packed)) {
      cached.scratch_bytes = needed;
    } else {
      cached.agreement = agreement_without_copy(algorithm);
    }
  }
  if (cached.agreement != Agreement::kByBarrier || meeting_.plan != nullptr) return {};
  return prepare(meeting_, {});
}

/// Begins the records of the current collective.
void Engine::record_begin() noexcept {
  unrecorded_ = !is_timed(current_->bytes);
  if (!unrecorded_) recorded_ = config_.recorder->begin(fingerprint_);
  WHORL_PROBE_OPERATION_BEGIN(sequence_, fingerprint_.collective, current_->bytes, -1);
  if (watched_) [[unlikely]]
    watch_begin();
}

/// Tells the trace and the observer that the current collective begins.
void Engine::watch_begin() noexcept {
  const std::uint8_t algorithm = current_->plan->algorithm;
  if (config_.trace != nullptr) { // reading the counter takes longer than the rest
    traced_ = {.begin = ticks(),
               .bytes = current_->bytes,
               .sequence = sequence_,
               .track = Trace::kOperations,
               .algorithm = algorithm,
               .kind = TraceRecord::Kind::kOperation};
  }
  if (config_.observer == nullptr) return;
  observed_ = config_.observer->begin({.fingerprint = fingerprint_,
                                       .algorithm = all_algorithms()[algorithm].name,
                                       .bytes = current_->bytes});
}

/// Tells the trace and the observer that the collective under way is complete.
void Engine::watch_end() noexcept {
  if (config_.trace != nullptr && !exchanging_) { // transfers have their own tracks
    traced_.end = ticks();
    config_.trace->add(traced_);
  }
  void* const handle = std::exchange(observed_, nullptr);
  if (handle != nullptr) config_.observer->end(handle);
}

Status Engine::start_collective(const Request& request) {
  if (request.blocks != nullptr) return start_exchange(request);
  exchanging_ = false;
  CachedCall& cached = request.table == nullptr
                           ? cached_calls_[static_cast<std::size_t>(request.collective)]
                       : request.collective == Collective::kAllGather ? all_gatherv_call_
                                                                      : reduce_scatterv_call_;
  if (!cached.fits(request)) WHORL_TRY(prepare(cached, request));
  current_ = &cached;
  // Lines of an input that was just read are in this core's cache: there, ordinary stores are
  // cheap.
  cached.replaces_input = request.pipeline == nullptr && reduces(request.collective) &&
                          !cached.apart(request.send, request.recv);
  WHORL_TRY(reserve(cached.scratch_bytes, request));
  fingerprint_ = fingerprint_of(request, ++sequence_, cached.plan->hash);
  const Membership& members = *config_.membership;
  Binding binding{.schedule = &cached.plan->schedule,
                  .map = cached.map,
                  .kernels = cached.kernels,
                  .input = static_cast<const std::byte*>(request.send),
                  .output = static_cast<std::byte*>(request.recv),
                  .scratch = scratch_.data(),
                  .nontemporal_output = cached.nontemporal && !cached.replaces_input,
                  .hears_all_first = cached.agreement == Agreement::kByFirstMessages,
                  .fingerprint = fingerprint_,
                  .pipeline = request.pipeline.get()};
  if (request.scaled && request.pipeline == nullptr) {
    binding.kernels.scale = scale_kernel(request.type, default_simd());
    const void* const factor =
        request.scalar_source != nullptr ? request.scalar_source : request.scalar.data();
    std::memcpy(binding.kernels.factor.bytes.data(), factor, size_of(request.type));
  }
  record_begin();
  cached.request = request;
  cached.fingerprint = fingerprint_;
  cached.request.pipeline.reset();
  cached.valid = request.table == nullptr && request.pipeline == nullptr; // a pipeline is used once
  if (members.nranks == 1 && request.type == DataType::kBool && reduces(request.collective)) {
    // One rank's schedule only copies, but a reduction also makes every nonzero byte 1.
    const void* const source = request.send;
    cached.kernels.reduce({&source, 1}, request.recv, request.count, 1);
    binding.input = static_cast<const std::byte*>(request.recv);
    cached.valid = false; // because a repetition has to do this, too
  }
  copied_to_ = nullptr;
  if (cached.agreement == Agreement::kByCopy && request.pipeline == nullptr) {
    copied_to_ = std::exchange(binding.output, scratch_.data() + cached.result_at);
  }
  cached.execution.bind(binding, endpoints_);
  count_memory(cached.execution.grown());
  begin(cached);
  return {};
}

/// Begins a collective whose execution is bound, or the barrier before it.
[[gnu::always_inline]] inline void Engine::begin(CachedCall& cached) {
  collective_active_ = true;
  if (cached.agreement == Agreement::kByBarrier) [[unlikely]]
    return meet();
  in_meeting_ = false;
  cached.execution.begin();
}

/// Begins the barrier before a collective.
void Engine::meet() {
  in_meeting_ = true;
  meeting_.execution.bind({.schedule = &meeting_.plan->schedule,
                           .map = meeting_.map,
                           .kernels = meeting_.kernels,
                           .fingerprint = fingerprint_},
                          endpoints_);
  count_memory(meeting_.execution.grown());
  meeting_.execution.begin();
}

bool Engine::CachedCall::apart(const void* send, const void* recv) const noexcept {
  const auto in = reinterpret_cast<std::uintptr_t>(send);
  const auto out = reinterpret_cast<std::uintptr_t>(recv);
  const std::uintptr_t in_end = in + input_bytes;
  const std::uintptr_t out_end = out + output_bytes;
  return in != 0 && out != 0 && in_end >= in && out_end >= out && (in_end <= out || out_end <= in);
}

void Engine::repeat(Collective collective, const void* send, void* recv) {
  batch_ = {};
  next_ = 0;
  CachedCall& cached = cached_calls_[static_cast<std::size_t>(collective)];
  current_ = &cached;
  cached.request.send = send;
  cached.request.recv = recv;
  fingerprint_ = cached.fingerprint.numbered(++sequence_);
  exchanging_ = false;
  record_begin();
  const bool copies = cached.agreement == Agreement::kByCopy;
  auto* const output = static_cast<std::byte*>(recv);
  copied_to_ = copies ? output : nullptr;
  cached.execution.rebind(static_cast<const std::byte*>(send),
                          copies ? scratch_.data() + cached.result_at : output, scratch_.data(),
                          fingerprint_);
  begin(cached);
}

Progress Engine::advance() {
  bool moved = false;
  const Progress collectives = advance_collectives();
  if (collectives == Progress::kFailed) return Progress::kFailed;
  moved |= collectives == Progress::kAdvanced;
  const Progress met = meet_any_rank();
  if (met == Progress::kFailed) return Progress::kFailed;
  moved |= met == Progress::kAdvanced;
  if (!active_transfers_.empty()) {
    const Progress transfers = advance_transfers();
    if (transfers == Progress::kFailed) return Progress::kFailed;
    moved |= transfers != Progress::kIdle;
  }
  if (collectives == Progress::kDone && active_transfers_.empty() && next_any_ == any_.size()) {
    return Progress::kDone;
  }
  return moved ? Progress::kAdvanced : Progress::kIdle;
}

/// Advances the barrier before the collective, and begins the collective when all ranks have met.
Progress Engine::advance_meeting() {
  const Progress progress = meeting_.execution.advance();
  if (progress != Progress::kDone) return progress;
  in_meeting_ = false;
  current_->execution.begin();
  return Progress::kAdvanced;
}

[[gnu::always_inline]] inline Progress Engine::advance_execution() {
  const Progress progress = current_->execution.advance();
  if (copied_to_ != nullptr && progress == Progress::kDone) {
    std::memcpy(copied_to_, scratch_.data() + current_->result_at, current_->output_bytes);
  }
  return progress;
}

[[gnu::always_inline]] inline Progress Engine::advance_collectives() {
  bool moved = false;
  for (;;) {
    if (!collective_active_) {
      while (next_ < batch_.size() && batch_[next_].point_to_point()) ++next_;
      if (next_ == batch_.size()) return Progress::kDone;
      failure_ = start_collective(batch_[next_++]);
      if (!failure_.ok()) return Progress::kFailed;
    }
    const Progress progress = in_meeting_   ? advance_meeting()
                              : exchanging_ ? exchange_->advance()
                                            : advance_execution();
    if (unrecorded_) { // while the first messages are under way, so that it costs no time
      recorded_ = config_.recorder->begin(fingerprint_);
      unrecorded_ = false;
    }
    if (progress == Progress::kFailed) failure_ = failure_of_collective();
    if (progress == Progress::kIdle && moved) return Progress::kAdvanced;
    if (progress != Progress::kDone) return progress;
    WHORL_PROBE_OPERATION_END(sequence_, fingerprint_.collective);
    if (watched_) [[unlikely]]
      watch_end();
    config_.recorder->end(recorded_, exchanging_ || is_timed(current_->bytes));
    collective_active_ = false;
    moved = true;
  }
}

Status Engine::failure() const { return failure_; }

std::string Engine::operation() const {
  if (collective_active_ && exchanging_) {
    const Transfer* const transfer = exchange_->current();
    return describe(transfer == nullptr ? fingerprint_ : transfer->fingerprint());
  }
  if (collective_active_) return describe(fingerprint_);
  if (!active_transfers_.empty()) {
    const Transfer& first = *active_transfers_.all().front();
    return describe_transfer(first.sends(), first.peer(), first.fingerprint());
  }
  if (next_any_ == any_.size()) return {};
  return describe_transfer(false, kAnyRank, any_[next_any_].fingerprint);
}

Execution::Waiting Engine::waits_for() const noexcept {
  if (collective_active_ && exchanging_) return exchange_->waiting();
  if (collective_active_) return execution().waiting();
  if (!active_transfers_.empty()) return active_transfers_.all().front()->waiting();
  return {.phase = next_any_ < any_.size() ? "receiving from any rank" : ""};
}

std::string Engine::describe_wait() const {
  const Execution::Waiting at = waits_for();
  if (at.peer < 0) return fmt::format("waiting while {}", at.phase);
  const std::size_t transfers = active_transfers_.size();
  return fmt::format("waiting for {} while {}{}", config_.membership->describe(at.peer), at.phase,
                     transfers > 1 ? fmt::format(" ({} transfers under way)", transfers) : "");
}

std::string Engine::waiting() const {
  const std::string self = config_.membership->describe(config_.membership->rank);
  if (!active()) return fmt::format("{} is idle", self);
  return fmt::format("{} in {}: {}", self, operation(), describe_wait());
}

} // namespace whorl
