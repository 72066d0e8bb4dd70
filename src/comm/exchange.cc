#include "comm/exchange.h"

#include <cstring>

namespace whorl {

Exchange::Exchange(const Membership& membership, const std::vector<Endpoint*>& endpoints,
                   Trace* trace)
    : membership_(membership) {
  for (int peer = 0; peer < membership.nranks; ++peer) {
    Endpoint* const endpoint = endpoints[static_cast<std::size_t>(peer)];
    const bool self = peer == membership.rank;
    sends_.push_back(self ? nullptr : std::make_unique<Transfer>(peer, true, endpoint, trace));
    receives_.push_back(self ? nullptr : std::make_unique<Transfer>(peer, false, endpoint, trace));
  }
}

Status Exchange::start(const Request& request, const TransferSchedules& schedules,
                       const Fingerprint& fingerprint, std::size_t& grown) {
  active_.clear();
  const Blocks& blocks = *request.blocks;
  const int n = membership_.nranks;
  const auto begin = [&](Transfer& transfer, const Blocks::Block& block) -> Status {
    if (!block.used) return {};
    WHORL_TRY(transfer.start(schedules, request.type, block.count, block.data,
                             membership_.slot_bytes, fingerprint.counting(block.count)));
    grown += transfer.grown();
    active_.push_back(&transfer);
    return {};
  };
  // In step d, rank r sends to r + d and receives from r − d: nobody is everyone's first peer.
  for (int distance = 1; distance < n; ++distance) {
    const auto to = static_cast<std::size_t>((membership_.rank + distance) % n);
    const auto from = static_cast<std::size_t>((membership_.rank + n - distance) % n);
    WHORL_TRY(begin(*sends_[to], blocks.sends[to]));
    WHORL_TRY(begin(*receives_[from], blocks.receives[from]));
  }
  const auto self = static_cast<std::size_t>(membership_.rank);
  const Blocks::Block& own = blocks.sends[self];
  if (own.used && own.count > 0 && own.data != blocks.receives[self].data) {
    std::memcpy(blocks.receives[self].data, own.data, own.count * size_of(request.type));
  }
  return {};
}

Progress Exchange::advance() noexcept {
  return advance_all(active_, [](Transfer& transfer) { return transfer.advance(); });
}

} // namespace whorl
