#include "transports/verbs/rails.h"

#include <algorithm>
#include <cstring>

namespace whorl::verbs {
namespace {

bool connectable(const PortAddress& a, const PortAddress& b) noexcept {
  if (a.fabric == Fabric::kNone || a.fabric != b.fabric) return false;
  constexpr std::size_t kSubnetBytes = 8;
  return a.fabric != Fabric::kInfiniBand ||
         std::equal(a.gid.begin(), a.gid.begin() + kSubnetBytes, b.gid.begin());
}

/// Returns the rails from the view of the rank with the ports `low`.
std::vector<RailPorts> pair_up(const PortAddresses& low, const PortAddresses& high) {
  std::vector<RailPorts> rails;
  std::array<bool, kMaxRails> taken_low{}, taken_high{};
  for (const bool same_number : {true, false}) {
    for (std::size_t i = 0; i < kMaxRails; ++i) {
      for (std::size_t j = 0; j < kMaxRails && !taken_low[i]; ++j) {
        if (taken_high[j] || !connectable(low[i], high[j])) continue;
        if (same_number && low[i].number != high[j].number) continue;
        taken_low[i] = taken_high[j] = true;
        rails.push_back({.own = static_cast<std::uint8_t>(i),
                         .peers = static_cast<std::uint8_t>(j),
                         .spare = !low[i].near || !high[j].near});
      }
    }
  }
  std::sort(rails.begin(), rails.end(),
            [](const RailPorts& a, const RailPorts& b) { return a.own < b.own; });
  std::stable_partition(rails.begin(), rails.end(), [](const RailPorts& r) { return !r.spare; });
  if (!rails.empty() && rails.front().spare) { // there is no better one
    for (RailPorts& rail : rails) rail.spare = false;
  }
  return rails;
}

} // namespace

std::vector<VerbsPort> choose_ports(std::span<const VerbsPort> ports, const VerbsPlace& place,
                                    std::size_t most) {
  std::vector<VerbsPort> near, far;
  std::vector<std::string> names;
  if (ports.size() > 1 && place.nearest) names = place.nearest();
  for (const VerbsPort& port : ports) {
    const bool is_near = std::find(names.begin(), names.end(), port.device->name) != names.end();
    (is_near ? near : far).push_back(port);
  }
  if (near.empty()) near.swap(far); // nobody knows which are nearer
  const auto in_turn = [&place](std::vector<VerbsPort>& some) {
    if (some.empty()) return;
    const auto first = static_cast<std::ptrdiff_t>(place.number % some.size());
    std::rotate(some.begin(), some.begin() + first, some.end());
  };
  in_turn(near);
  in_turn(far);
  for (VerbsPort& port : far) port.address.near = false;
  near.insert(near.end(), far.begin(), far.end());
  near.resize(std::min({near.size(), most, kMaxRails}));
  return near;
}

PortAddresses ports_of(const PeerInfo& info, std::size_t index) noexcept {
  PortAddresses ports;
  if (index >= info.addresses.size()) return ports;
  const PeerInfo::Address& field = info.addresses[index];
  if (field.size < sizeof ports || field.size > field.bytes.size()) return ports;
  std::memcpy(&ports, field.bytes.data() + field.size - sizeof ports, sizeof ports);
  return ports;
}

std::vector<RailPorts> rails_between(const PeerInfo& self, const PeerInfo& peer,
                                     std::size_t index) {
  const PortAddresses own = ports_of(self, index), theirs = ports_of(peer, index);
  if (self.rank <= peer.rank) return pair_up(own, theirs);
  std::vector<RailPorts> rails = pair_up(theirs, own);
  for (RailPorts& rail : rails) std::swap(rail.own, rail.peers);
  return rails;
}

} // namespace whorl::verbs
