// The part of Engine that moves vectors between two ranks: sends, receives, and the collectives
// whose blocks have different sizes.
#include <fmt/core.h>

#include <cstring>
#include <utility>

#include "base/probes.h"
#include "engine/engine.h"
#include "transports/error_text.h"

namespace whorl {

Engine::TransferQueue& Engine::transfer_queue(bool sends, int peer) {
  auto& slot = transfers_[transfer_index(sends, peer)];
  if (slot == nullptr) {
    Endpoint* const endpoint = config_.endpoints.back()[static_cast<std::size_t>(peer)];
    slot = std::unique_ptr<TransferQueue>(
        new TransferQueue{.transfer = Transfer(peer, sends, endpoint, config_.trace)});
  }
  return *slot;
}

/// Empties a queue and adds it to the active transfers.
void Engine::activate(TransferQueue& queue) {
  queue.requests.clear();
  queue.next = 0;
  active_transfers_.add(queue.transfer);
}

/// Sorts the sends and receives of a batch into one queue for each peer and direction. Messages of
/// this rank to itself, which check_transfers() has found to be pairs, are copied at once.
Status Engine::queue_transfers(std::span<const Request> batch) {
  const int self = config_.membership->rank;
  std::vector<const Request*> self_sends, self_receives;
  for (const Request& request : batch) {
    if (!request.point_to_point()) continue;
    const bool sends = request.collective == Collective::kSend;
    if (request.peer == kAnyRank) {
      any_.push_back({.request = &request, .fingerprint = fingerprint_of(request, 0, 0)});
      continue;
    }
    if (request.peer == self) {
      (sends ? self_sends : self_receives).push_back(&request);
      continue;
    }
    TransferQueue& queue = transfer_queue(sends, request.peer);
    if (!active_transfers_.contains(queue.transfer)) activate(queue);
    queue.requests.push_back(&request);
  }
  for (std::size_t i = 0; i < self_sends.size(); ++i) {
    const std::size_t bytes = self_sends[i]->count * size_of(self_sends[i]->type);
    if (bytes > 0) std::memmove(self_receives[i]->recv, self_sends[i]->send, bytes);
  }
  for (const Transfer* const transfer : active_transfers_.all()) {
    WHORL_TRY(start_transfer(transfer_queue(transfer->sends(), transfer->peer())));
  }
  return {};
}

/// Returns the schedules of the two ranks of a transfer.
Result<TransferSchedules> Engine::transfer_schedules() {
  if (transfer_schedules_.receive != nullptr) [[likely]]
    return transfer_schedules_;
  TransferSchedules schedules;
  for (const auto& [half, schedule] : {std::pair{Collective::kSend, &schedules.send},
                                       std::pair{Collective::kRecv, &schedules.receive}}) {
    const auto made = plans_.plan(half, config_.selector.pick(half, 0), 0);
    if (!made.ok()) return made.status();
    *schedule = &(*made)->schedule;
  }
  transfer_schedules_ = schedules;
  return schedules;
}

/// Begins the next request of a queue.
Status Engine::start_transfer(TransferQueue& queue) {
  const Request& request = *queue.requests[queue.next];
  const auto schedules = transfer_schedules();
  if (!schedules.ok()) return schedules.status();
  Transfer& transfer = queue.transfer;
  auto& number = (transfer.sends() ? sent_ : received_)[static_cast<std::size_t>(transfer.peer())];
  // The two ranks of a transfer build their plans from different algorithms of the registry.
  WHORL_TRY(transfer.start(
      *schedules, request.type, request.count,
      static_cast<std::byte*>(transfer.sends() ? const_cast<void*>(request.send) : request.recv),
      config_.membership->slot_bytes, fingerprint_of(request, ++number, 0),
      request.pipeline.get()));
  queue.recorded =
      config_.recorder->begin(transfer.fingerprint(), transfer.peer(), transfer.sends());
  WHORL_PROBE_OPERATION_BEGIN(number, static_cast<int>(request.collective), transfer.bytes(),
                              transfer.peer());
  if (config_.observer != nullptr) [[unlikely]] {
    queue.observed = config_.observer->begin({.fingerprint = transfer.fingerprint(),
                                              .algorithm = {},
                                              .bytes = transfer.bytes(),
                                              .peer = transfer.peer(),
                                              .sends = transfer.sends()});
  }
  count_memory(transfer.grown());
  ++queue.next;
  return {};
}

/// Looks for a rank that has sent a message to a receive from any rank, beginning behind the rank
/// of the last such message. A message that waits is the oldest one of its rank that has not been
/// received, because this batch has no other receives.
Progress Engine::meet_any_rank() {
  if (any_queue_ != nullptr || next_any_ == any_.size()) return Progress::kDone;
  const Membership& members = *config_.membership;
  bool moved = false;
  for (int i = 0; i < members.nranks; ++i) {
    const int peer = (any_turn_ + i) % members.nranks;
    if (peer == members.rank) continue;
    Endpoint& endpoint = *config_.endpoints.back()[static_cast<std::size_t>(peer)];
    if (!endpoint.peek_arrived()) {
      const Progress progress = endpoint.progress();
      if (progress == Progress::kFailed) return Progress::kFailed;
      moved |= progress != Progress::kIdle;
      continue;
    }
    any_turn_ = (peer + 1) % members.nranks;
    any_queue_ = &transfer_queue(false, peer);
    activate(*any_queue_);
    any_queue_->requests.push_back(any_[next_any_].request);
    failure_ = start_transfer(*any_queue_);
    return failure_.ok() ? Progress::kAdvanced : Progress::kFailed;
  }
  if (moved) return Progress::kAdvanced;
  int left = 0;
  for (int peer = 0; peer < members.nranks; ++peer) {
    if (peer == members.rank) continue;
    if (!has_left(peer)) return Progress::kIdle;
    left = peer;
  }
  failure_ = Status::error(Code::kRemoteError, text_of_leaving(members, left));
  return Progress::kFailed;
}

/// Begins a collective whose blocks have different sizes.
Status Engine::start_exchange(const Request& request) {
  const auto schedules = transfer_schedules();
  if (!schedules.ok()) return schedules.status();
  if (exchange_ == nullptr) {
    exchange_ = std::make_unique<VExchange>(*config_.membership, config_.endpoints.front(),
                                            config_.trace, plan_bytes_);
  }
  fingerprint_ = fingerprint_of(request, ++sequence_, 0);
  const Status status = exchange_->start(request, *schedules, fingerprint_);
  recorded_ = config_.recorder->begin(fingerprint_);
  unrecorded_ = false;
  WHORL_PROBE_OPERATION_BEGIN(sequence_, fingerprint_.collective, std::size_t{0}, -1);
  if (config_.observer != nullptr) [[unlikely]] {
    observed_ = config_.observer->begin({.fingerprint = fingerprint_, .algorithm = {}});
  }
  exchanging_ = true;
  in_meeting_ = false;
  collective_active_ = true;
  return status;
}

/// Begins the next request of the queue whose transfer is done. Returns false if that fails, with
/// the error in failure_.
bool Engine::next_transfer(const Transfer& done) {
  TransferQueue& queue = transfer_queue(done.sends(), done.peer());
  config_.recorder->end(queue.recorded, is_timed(done.bytes()));
  WHORL_PROBE_OPERATION_END(done.fingerprint().sequence,
                            static_cast<int>(done.sends() ? Collective::kSend : Collective::kRecv));
  void* const observed = std::exchange(queue.observed, nullptr);
  if (observed != nullptr) [[unlikely]]
    config_.observer->end(observed);
  if (queue.next < queue.requests.size()) {
    active_transfers_.add(queue.transfer);
    failure_ = start_transfer(queue);
    return failure_.ok();
  }
  if (&queue == any_queue_) {
    *any_[next_any_++].request->source = done.peer();
    any_queue_ = nullptr;
  }
  return true;
}

/// Advances all sends and receives of the batch.
Progress Engine::advance_transfers() {
  const Progress progress =
      active_transfers_.advance([this](const Transfer& done) { return next_transfer(done); });
  if (progress == Progress::kFailed && failure_.ok()) {
    failure_ = fail_on(*active_transfers_.all().front());
  }
  return progress;
}

Status Engine::fail_on(const Transfer& transfer) const {
  if (Status error = transfer.execution().pipeline_error(); !error.ok()) return error;
  // In the schedule of a transfer the peer is 0 or 1, whatever its rank.
  return fail_on_block(transfer.execution().mismatch(), transfer.peer(), transfer.fingerprint());
}

/// Returns the error of a message that may be a block of a collective whose blocks differ in size.
Status Engine::fail_on_block(const Execution::Mismatch& mismatch, int peer,
                             const Fingerprint& ours) const {
  const Status status = fail_on(mismatch, peer, ours);
  if (status.ok() || !ours.uneven()) return status;
  return status.with_context(
      fmt::format("the block from rank {} to rank {}", peer, config_.membership->rank));
}

} // namespace whorl
