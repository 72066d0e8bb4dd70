#include "engine/v_exchange.h"

#include <cstring>

namespace whorl {

VExchange::VExchange(const Membership& membership, const std::vector<Endpoint*>& endpoints,
                     Trace* trace, std::atomic<std::size_t>& counted_bytes)
    : membership_(membership), counted_bytes_(counted_bytes), endpoints_(endpoints) {
  for (int peer = 0; peer < membership.nranks; ++peer) {
    Endpoint* const endpoint = endpoints[static_cast<std::size_t>(peer)];
    const bool self = peer == membership.rank;
    sends_.push_back(self ? nullptr : std::make_unique<Transfer>(peer, true, endpoint, trace));
    receives_.push_back(self ? nullptr : std::make_unique<Transfer>(peer, false, endpoint, trace));
  }
}

Status VExchange::start(const Request& request, const TransferSchedules& schedules,
                        const Fingerprint& fingerprint) {
  active_.clear();
  request_ = &request;
  schedules_ = schedules;
  fingerprint_ = fingerprint;
  distance_ = 1;
  mismatch_ = {};
  const bool all_at_once = 2 * (static_cast<std::size_t>(membership_.nranks) - 1) <= kMaxAtOnce;
  heard_ = all_at_once ? 1 : membership_.nranks;
  error_ = open();
  if (error_.ok() && !hearing()) copy_own();
  return error_;
}

void VExchange::copy_own() noexcept {
  const auto self = static_cast<std::size_t>(membership_.rank);
  const Blocks::Block& own = request_->blocks->sends[self];
  std::byte* const target = request_->blocks->receives[self].data;
  if (own.used && own.count > 0 && own.data != target) {
    std::memcpy(target, own.data, own.count * size_of(request_->type));
  }
}

Status VExchange::begin(Transfer& transfer, const Blocks::Block& block) {
  if (!block.used) return {};
  WHORL_TRY(transfer.start(schedules_, request_->type, block.count, block.data,
                           membership_.slot_bytes, fingerprint_.counting(block.count)));
  counted_bytes_.fetch_add(transfer.grown(), std::memory_order_relaxed);
  active_.add(transfer);
  return {};
}

/// Begins further transfers while there is room. Distance d means that rank r sends to r + d and
/// receives from r − d, so no rank is the first peer of all. All ranks take the distances in the
/// same order, so the transfers of the smallest incomplete distance are in progress at both ends.
Status VExchange::open() {
  const Blocks& blocks = *request_->blocks;
  const int n = membership_.nranks;
  for (; distance_ < n && active_.size() + 2 <= kMaxAtOnce; ++distance_) {
    const auto to = static_cast<std::size_t>((membership_.rank + distance_) % n);
    WHORL_TRY(begin(*sends_[to], blocks.sends[to]));
    if (!hearing())
      WHORL_TRY(begin(*receives_[before(distance_)], blocks.receives[before(distance_)]));
  }
  return {};
}

/// Looks for the first message of each peer, and begins to receive when all are there; fails if one
/// is of another call. Returns whether a message has come.
bool VExchange::hear_all() {
  const Blocks& blocks = *request_->blocks;
  const int heard_before = heard_;
  for (; hearing(); ++heard_) {
    const Blocks::Block& block = blocks.receives[before(heard_)];
    if (!block.used) continue;
    Fingerprint theirs;
    if (!endpoints_[before(heard_)]->try_hear(theirs)) break;
    const Fingerprint ours = fingerprint_.counting(block.count);
    if (theirs == ours) continue;
    mismatch_ = {.peer = static_cast<int>(before(heard_)), .ours = ours, .theirs = theirs};
    return true;
  }
  if (hearing()) return heard_ != heard_before;
  copy_own();
  for (int d = 1; d < membership_.nranks && error_.ok(); ++d) {
    error_ = begin(*receives_[before(d)], blocks.receives[before(d)]);
  }
  return true;
}

Progress VExchange::advance() {
  const bool heard = hearing() && hear_all();
  if (mismatch_.peer >= 0 || !error_.ok()) return Progress::kFailed;
  const Progress progress = active_.advance([this](Transfer&) {
    error_ = open();
    return error_.ok();
  });
  if (progress == Progress::kFailed || !(hearing() || heard)) return progress;
  if (heard || progress == Progress::kAdvanced) return Progress::kAdvanced;
  const Progress moved = endpoints_[before(heard_)]->progress();
  return moved == Progress::kDone ? Progress::kAdvanced : moved;
}

Execution::Waiting VExchange::waiting() const noexcept {
  if (hearing()) return {.peer = static_cast<int>(before(heard_)), .phase = "receiving"};
  return current() == nullptr ? Execution::Waiting() : current()->waiting();
}

} // namespace whorl
