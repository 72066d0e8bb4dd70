#include "engine/v_exchange.h"

#include <cstring>

namespace whorl {

VExchange::VExchange(const Membership& membership, const std::vector<Endpoint*>& endpoints,
                     Trace* trace, std::atomic<std::size_t>& counted_bytes)
    : membership_(membership), counted_bytes_(counted_bytes) {
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
  error_ = {};
  WHORL_TRY(open());
  const auto self = static_cast<std::size_t>(membership_.rank);
  const Blocks::Block& own = request.blocks->sends[self];
  if (own.used && own.count > 0 && own.data != request.blocks->receives[self].data) {
    std::memcpy(request.blocks->receives[self].data, own.data, own.count * size_of(request.type));
  }
  return {};
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
    const auto from = static_cast<std::size_t>((membership_.rank + n - distance_) % n);
    WHORL_TRY(begin(*sends_[to], blocks.sends[to]));
    WHORL_TRY(begin(*receives_[from], blocks.receives[from]));
  }
  return {};
}

Progress VExchange::advance() {
  return active_.advance([this](Transfer&) {
    error_ = open();
    return error_.ok();
  });
}

} // namespace whorl
