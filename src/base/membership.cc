#include "base/membership.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "base/printable.h"

namespace whorl {

std::vector<std::string> Membership::names() const {
  std::vector<std::string> all;
  for (int peer = 0; peer < nranks; ++peer) all.push_back(describe(peer));
  return all;
}

std::string Membership::describe(int peer) const {
  if (peer < 0 || static_cast<std::size_t>(peer) >= peers.size()) {
    return fmt::format("rank {}", peer);
  }
  const PeerInfo& info = peers[static_cast<std::size_t>(peer)];
  return fmt::format("rank {}{} (host {}, pid {})", peer, name.empty() ? "" : " of " + name,
                     info.host_name.data(), info.process_id);
}

int Membership::ranks_sharing(std::uint64_t PeerInfo::*key, int member) const noexcept {
  return static_cast<int>(std::count_if(peers.begin(), peers.end(), [&](const PeerInfo& other) {
    return other.*key == info(member).*key;
  }));
}

int Membership::most_ranks_sharing(std::uint64_t PeerInfo::*key) const {
  std::map<std::uint64_t, int> ranks;
  int most = 1;
  for (const PeerInfo& info : peers) most = std::max(most, ++ranks[info.*key]);
  return most;
}

std::uint64_t Membership::smallest_budget() const noexcept {
  std::uint64_t budget = 0;
  for (const PeerInfo& info : peers) {
    if (info.memory_budget == 0) continue;
    budget = budget == 0 ? info.memory_budget : std::min(budget, info.memory_budget);
  }
  return budget;
}

bool Membership::on_one_host() const noexcept {
  return std::all_of(peers.begin(), peers.end(),
                     [&](const PeerInfo& info) { return info.host_key == peers[0].host_key; });
}

bool Membership::shares_devices() const noexcept {
  return nranks <= kMaxDeviceRanks && on_one_host() &&
         std::all_of(peers.begin(), peers.end(),
                     [](const PeerInfo& info) { return info.device_peers == 1; });
}

Status check_peer_info(const PeerInfo& info, int rank, int nranks) {
  const auto bad = [&](std::string_view what) {
    return Status::error(
        Code::kInternalError,
        fmt::format("the info of rank {} of {} is malformed: {}", rank, nranks, what));
  };
  if (info.rank != static_cast<std::uint32_t>(rank)) return bad("wrong rank");
  if (std::find(info.host_name.begin(), info.host_name.end(), '\0') == info.host_name.end()) {
    return bad("host name without end");
  }
  const std::string_view host = info.host_name.data();
  if (std::any_of(host.begin(), host.end(), is_control)) return bad("host name");
  if (info.slots == 1 || info.slots > 1024) return bad("slots");
  if ((info.slot_bytes != 0 && info.slot_bytes < 64) || info.slot_bytes > (1U << 30) ||
      info.slot_bytes % 64 != 0) {
    return bad("slot size");
  }
  if (info.encrypts > 1) return bad("encryption");
  if (info.channels < 1 || info.channels > 64) return bad("channels");
  const auto is_rate = [](double value) { return value >= 0 && value < 1e9; }; // no NaN
  if (!is_rate(info.place.nic_gb_per_s)) return bad("NIC");
  if (!is_rate(info.place.leaf_gb_per_s) || !is_rate(info.place.pod_gb_per_s)) return bad("switch");
  for (const PeerInfo::Address& address : info.addresses) {
    if (address.size > kMaxAddressBytes) return bad("address");
  }
  return {};
}

} // namespace whorl
