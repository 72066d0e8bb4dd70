#include "base/membership.h"

#include <fmt/core.h>

#include <algorithm>

namespace whorl {

std::vector<std::string> Membership::names() const {
  std::vector<std::string> all;
  for (int peer = 0; peer < nranks; ++peer) all.push_back(describe(peer));
  return all;
}

std::string Membership::describe(int peer) const {
  if (peer < 0 || static_cast<std::size_t>(peer) >= cards.size()) {
    return fmt::format("rank {}", peer);
  }
  const RankCard& card = cards[static_cast<std::size_t>(peer)];
  return fmt::format("rank {}{} (host {}, pid {})", peer, name.empty() ? "" : " of " + name,
                     card.host_name.data(), card.process_id);
}

int Membership::ranks_in_process_of(int member) const noexcept {
  return static_cast<int>(std::count_if(cards.begin(), cards.end(), [&](const RankCard& other) {
    return other.process_key == card(member).process_key;
  }));
}

bool Membership::on_one_host() const noexcept {
  return std::all_of(cards.begin(), cards.end(),
                     [&](const RankCard& card) { return card.host_key == cards[0].host_key; });
}

bool Membership::shares_devices() const noexcept {
  return nranks <= kMostDeviceRanks && on_one_host() &&
         std::all_of(cards.begin(), cards.end(),
                     [](const RankCard& card) { return card.device_peers == 1; });
}

Status check_card(const RankCard& card, int rank, int nranks) {
  const auto bad = [&](std::string_view what) {
    return Status::error(
        Code::kInternalError,
        fmt::format("the card of rank {} of {} is malformed: {}", rank, nranks, what));
  };
  if (card.rank != static_cast<std::uint32_t>(rank)) return bad("wrong rank");
  if (std::find(card.host_name.begin(), card.host_name.end(), '\0') == card.host_name.end()) {
    return bad("host name without end");
  }
  if (card.slots == 1 || card.slots > 1024) return bad("slots");
  if ((card.slot_bytes != 0 && card.slot_bytes < 64) || card.slot_bytes > (1U << 30) ||
      card.slot_bytes % 64 != 0) {
    return bad("slot size");
  }
  if (card.channels < 1 || card.channels > 64) return bad("channels");
  for (const RankCard::Address& address : card.addresses) {
    if (address.size > kMaxAddressBytes) return bad("address");
  }
  return {};
}

} // namespace whorl
