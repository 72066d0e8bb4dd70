#include "transports/control/ports.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/bytes.h"

namespace whorl {
namespace {

/// Returns the addresses in a PeerInfo at which a rank on another host, or on the same one, can
/// connect.
Result<std::vector<SocketAddress>> addresses_of(const PeerInfo& info, std::size_t index,
                                                bool same_host, std::size_t extra_bytes) {
  const auto bad = [&] {
    return Status::error(Code::kInternalError,
                         fmt::format("the TCP address of rank {} is malformed", info.rank));
  };
  if (index >= info.addresses.size()) return bad();
  const PeerInfo::Address& field = info.addresses[index];
  if (field.size > field.bytes.size()) return bad();
  ByteReader in(std::span<const std::byte>(field.bytes).first(field.size));
  const auto count = in.get<std::uint8_t>();
  std::vector<SocketAddress> out;
  for (int i = 0; i < count; ++i) {
    const auto bytes = in.get_bytes(SocketAddress::kEncodedBytes);
    if (!in.ok()) return bad();
    out.push_back(SocketAddress::decode(bytes.first<SocketAddress::kEncodedBytes>()));
    if (out.back().family() != AF_INET && out.back().family() != AF_INET6) return bad();
  }
  if (!in.ok() || in.left() != extra_bytes || out.empty()) return bad();
  // Another host's loopback is this host's: of no use, unless there is nothing else.
  const auto loopback = std::stable_partition(
      out.begin(), out.end(),
      [&](const SocketAddress& address) { return address.is_loopback() == same_host; });
  if (!same_host && loopback != out.begin()) out.erase(loopback, out.end());
  return out;
}

} // namespace

Result<std::vector<std::byte>> PeerPorts::bind() {
  const std::size_t most = (kMaxAddressBytes - extra_bytes_ - 1) / SocketAddress::kEncodedBytes;
  Result<std::vector<Listener>> bound = bind_for_peers(most, true);
  if (!bound.ok()) return bound.status();
  bound_ = *std::move(bound);
  ByteWriter out;
  out.put(static_cast<std::uint8_t>(bound_.size()));
  for (const Listener& listener : bound_) out.put_bytes(listener.address.encode());
  return out.bytes();
}

bool PeerPorts::have_addresses(const PeerInfo& self, const PeerInfo& peer,
                               std::size_t index) noexcept {
  return index < self.addresses.size() && self.addresses[index].size > 0 &&
         peer.addresses[index].size > 0;
}

Result<std::vector<SocketAddress>> PeerPorts::outer_addresses(const PeerInfo& info,
                                                              std::size_t index) const {
  return addresses_of(info, index, false, extra_bytes_);
}

Result<std::vector<MeshLink>> PeerPorts::connect(const Membership& membership,
                                                 std::span<const int> peers, std::size_t index,
                                                 const Lanes& lanes) {
  MeshPlan plan;
  plan.rank = membership.rank;
  plan.identity = &membership.identity;
  plan.congestion = lanes.congestion;
  plan.encrypts = lanes.encrypts;
  plan.deadline_ns = sys().now_ns() + membership.timeout_ns;
  plan.comm_error = membership.comm_error;
  plan.check = membership.check_others;
  plan.describe = [&](int rank) { return membership.describe(rank); };
  const PeerInfo& self = membership.info(membership.rank);
  for (const int peer : peers) {
    const PeerInfo& info = membership.info(peer);
    std::vector<SocketAddress> addresses;
    if (peer < membership.rank) {
      Result<std::vector<SocketAddress>> found =
          addresses_of(info, index, info.host_key == self.host_key, extra_bytes_);
      if (!found.ok()) return found.status();
      addresses = *std::move(found);
    }
    for (int lane = -1; lane < lanes.data; ++lane) {
      const SocketRole role = lane < 0 ? SocketRole::kControl : SocketRole::kData;
      const auto channel = static_cast<std::uint32_t>(std::max(lane, 0));
      if (peer < membership.rank) {
        plan.targets.push_back({peer, role, channel, addresses});
      } else {
        plan.expected.push_back({peer, role, channel});
      }
    }
  }
  WHORL_TRY(listen_for(membership, plan.expected));
  std::vector<Fd> listeners;
  for (Listener& listener : bound_) listeners.push_back(std::move(listener.socket));
  bound_.clear();
  Result<std::vector<MeshLink>> links = connect_mesh(listeners, plan);
  stop_listening(listeners);
  return links;
}

/// Listens at the bound ports to which expected peers connect: at loopback for peers of this host,
/// at the other addresses for peers of other hosts, and at all of them if one of the two kinds is
/// missing. Closes the rest.
Status PeerPorts::listen_for(const Membership& membership, std::span<const MeshExpected> expected) {
  const auto host = [&](int rank) { return membership.info(rank).host_key; };
  const auto is_loopback = [](const Listener& l) { return l.address.is_loopback(); };
  const bool any_loopback = std::any_of(bound_.begin(), bound_.end(), is_loopback);
  const bool any_outer = !std::all_of(bound_.begin(), bound_.end(), is_loopback);
  bool near = false;
  bool far = false;
  for (const MeshExpected& peer : expected) {
    (host(peer.rank) == host(membership.rank) ? near : far) = true;
  }
  for (Listener& listener : bound_) {
    const bool wanted =
        is_loopback(listener) ? near || (far && !any_outer) : far || (near && !any_loopback);
    if (!wanted) listener.socket.reset();
    if (!listener.socket.valid()) continue;
    // The sockets that are accepted inherit the option: with it the port can be bound again, where
    // the ranks that remain meet after the death of others.
    static_cast<void>(sys().setsockopt(listener.socket.get(), SOL_SOCKET, SO_REUSEADDR, 1));
    WHORL_TRY(start_listening(listener.socket));
  }
  return {};
}

} // namespace whorl
