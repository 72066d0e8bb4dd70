#include "transports/tcp/transport.h"

#include <fmt/core.h>
#include <linux/sock_diag.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"

namespace whorl {
namespace {

// Costs for the cost model: between two processes of one machine, over loopback or between two
// network namespaces (docs/results/tcp_2026-11-21.md); and between two machines, over a switch with
// 25 Gbit/s.
constexpr double kOverheadUs = 4.0;
constexpr double kAlphaUs = 6.0, kBetaUsPerKib = 0.2;
constexpr double kFarAlphaUs = 20.0, kFarBetaUsPerKib = 0.35;

constexpr std::uint32_t kReadable = EPOLLIN | EPOLLRDHUP | EPOLLET;

/// Returns the addresses in a PeerInfo at which a rank on another host, or on the same one, can
/// connect.
Result<std::vector<SocketAddress>> addresses_of(const PeerInfo& info, std::size_t index,
                                                bool same_host) {
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
  if (!in.ok() || in.left() != 0 || out.empty()) return bad();
  // Another host's loopback is this host's: of no use, unless there is nothing else.
  const auto loopback = std::stable_partition(
      out.begin(), out.end(),
      [&](const SocketAddress& address) { return address.is_loopback() == same_host; });
  if (!same_host && loopback != out.begin()) out.erase(loopback, out.end());
  return out;
}

} // namespace

TcpTransport::~TcpTransport() {
  // A rank that leaves because of an error sends the error: other ranks could take its leaving for
  // the cause.
  if (membership_ != nullptr && membership_->comm_error->is_set())
    notify_peers(membership_->comm_error->status());
  send_control(tcp::ControlKind::kGoodbye, "");
  for (Peer& peer : peers_) {
    for (const std::unique_ptr<TcpEndpoint>& endpoint : peer.endpoints) {
      if (endpoint != nullptr) endpoint->close();
    }
    close_gently(peer.control.get(), peer.frame);
  }
  peers_.clear();
  if (arena_ != nullptr) sys().munmap(arena_, arena_bytes_);
}

Result<std::vector<std::byte>> TcpTransport::listen(const Identity&) {
  Result<TcpTuning> tuning = TcpTuning::from_environment();
  if (!tuning.ok()) return tuning.status();
  tuning_ = *std::move(tuning);
  constexpr std::size_t kMaxAddresses = (kMaxAddressBytes - 1) / SocketAddress::kEncodedBytes;
  Result<std::vector<Listener>> bound = bind_for_peers(kMaxAddresses, true);
  if (!bound.ok()) return bound.status();
  bound_ = *std::move(bound);
  ByteWriter out;
  out.put(static_cast<std::uint8_t>(bound_.size()));
  for (const Listener& listener : bound_) {
    if (listener.socket.valid()) WHORL_TRY(tuning_.prepare(listener.socket.get()));
    out.put_bytes(listener.address.encode());
  }
  return out.bytes();
}

Reach TcpTransport::reach(const PeerInfo& self, const PeerInfo& peer, std::size_t index) const {
  if (index >= self.addresses.size()) return {};
  const bool both = self.addresses[index].size > 0 && peer.addresses[index].size > 0;
  const bool far = self.machine_key != peer.machine_key;
  // No connection is quicker than the NICs, nor than one within a machine.
  const double rate = std::min(self.place.nic_gb_per_s, peer.place.nic_gb_per_s);
  const double beta = rate > 0 ? std::max(kBetaUsPerKib, 1.024 / rate) : kFarBetaUsPerKib;
  return {.reachable = both,
          .alpha_us = far ? kFarAlphaUs : kAlphaUs,
          .overhead_us = kOverheadUs,
          .beta_us_per_kib = far ? beta : kBetaUsPerKib,
          .networked = true};
}

Status TcpTransport::connect(const Membership& membership, std::span<const int> peers,
                             std::size_t index) {
  membership_ = &membership;
  MeshPlan plan;
  plan.rank = membership.rank;
  plan.identity = &membership.identity;
  plan.congestion = tuning_.congestion();
  plan.deadline_ns = sys().now_ns() + membership.timeout_ns;
  plan.comm_error = membership.comm_error;
  plan.describe = [&](int rank) { return membership.describe(rank); };
  const PeerInfo& self = membership.peers[static_cast<std::size_t>(membership.rank)];
  for (const int peer : peers) {
    const PeerInfo& info = membership.peers[static_cast<std::size_t>(peer)];
    std::vector<SocketAddress> addresses;
    if (peer < membership.rank) {
      Result<std::vector<SocketAddress>> found =
          addresses_of(info, index, info.host_key == self.host_key);
      if (!found.ok()) return found.status();
      addresses = *std::move(found);
    }
    for (int lane = -1; lane < membership.channels; ++lane) {
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
  if (!links.ok()) return links.status();
  return adopt(*std::move(links), peers);
}

/// Listens at the bound ports to which expected peers connect: at loopback for peers of this host,
/// at the other addresses for peers of other hosts, and at all of them if one of the two kinds is
/// missing. Closes the rest.
Status TcpTransport::listen_for(const Membership& membership,
                                std::span<const MeshExpected> expected) {
  const auto host = [&](int rank) {
    return membership.peers[static_cast<std::size_t>(rank)].host_key;
  };
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
    if (listener.socket.valid()) WHORL_TRY(start_listening(listener.socket));
  }
  return {};
}

Status TcpTransport::adopt(std::vector<MeshLink> links, std::span<const int> peers) {
  const auto channels = static_cast<std::size_t>(membership_->channels);
  const std::size_t each =
      round_up(TcpEndpoint::memory_bytes(membership_->slots, membership_->slot_bytes), 4096);
  arena_bytes_ = std::max<std::size_t>(each * channels * peers.size(), 4096);
  void* memory = nullptr;
  if (const int result = sys().mmap(nullptr, arena_bytes_, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, &memory);
      result < 0) {
    return Status::error(Code::kSystemError,
                         fmt::format("no memory for the slots of {} TCP connections ({} bytes): {}",
                                     channels * peers.size(), arena_bytes_, errno_text(result)));
  }
  arena_ = static_cast<std::byte*>(memory);
  epoll_.reset(sys().epoll_create());
  control_epoll_.reset(sys().epoll_create());
  full_epoll_.reset(sys().epoll_create());
  if (!epoll_.valid() || !control_epoll_.valid() || !full_epoll_.valid() ||
      sys().epoll_add(epoll_.get(), control_epoll_.get(), kReadable, 0) < 0 ||
      sys().epoll_add(epoll_.get(), full_epoll_.get(), kReadable, 0) < 0) {
    return Status::error(Code::kSystemError,
                         "epoll_create failed; raise the limit on open files (ulimit -n)");
  }

  peers_ = std::vector<Peer>(peers.size());
  peer_of_rank_.assign(static_cast<std::size_t>(membership_->nranks), -1);
  for (std::size_t i = 0; i < peers.size(); ++i) {
    peers_[i].rank = peers[i];
    peers_[i].endpoints.resize(channels);
    peer_of_rank_[static_cast<std::size_t>(peers[i])] = static_cast<int>(i);
  }
  std::byte* next = arena_;
  TcpFailureJudge& judge = *this; // the base is private
  for (MeshLink& link : links) {
    Peer& peer = *find(link.rank);
    if (link.role == SocketRole::kControl) {
      peer.control = std::move(link.socket);
    } else {
      peer.endpoints[link.channel] =
          std::make_unique<TcpEndpoint>(std::move(link.socket), link.rank, membership_->slots,
                                        membership_->slot_bytes, std::span(next, each), judge);
      next += each;
    }
    if (link.role == SocketRole::kControl && log_enabled(LogLevel::kInfo)) {
      log(LogLevel::kInfo,
          fmt::format("rank {}: {} connected by TCP{}{}", membership_->rank,
                      membership_->describe(link.rank), link.via.empty() ? "" : " at ", link.via));
    }
  }
  for (const Peer& peer : peers_) WHORL_TRY(watch(peer));
  const std::lock_guard lock(notify_mutex_);
  connected_ = true;
  return {};
}

/// Registers the sockets of a peer and turns on the probes that find a silent death.
Status TcpTransport::watch(const Peer& peer) {
  int result = probe_silence(peer.control.get());
  const auto index = static_cast<std::uint64_t>(&peer - peers_.data());
  if (result >= 0) {
    result = sys().epoll_add(control_epoll_.get(), peer.control.get(), kReadable, index);
  }
  for (const std::unique_ptr<TcpEndpoint>& endpoint : peer.endpoints) {
    WHORL_TRY(tuning_.finish(endpoint->fd()));
    if (result >= 0) {
      result = sys().epoll_add(epoll_.get(), endpoint->fd(), kReadable, 0);
    }
  }
  if (result >= 0) return {};
  return Status::error(Code::kSystemError,
                       fmt::format("the connection to {} cannot be watched: {}",
                                   membership_->describe(peer.rank), errno_text(result)));
}

TcpTransport::Peer* TcpTransport::find(int rank) noexcept {
  if (rank < 0 || static_cast<std::size_t>(rank) >= peer_of_rank_.size()) return nullptr;
  const int index = peer_of_rank_[static_cast<std::size_t>(rank)];
  return index < 0 ? nullptr : &peers_[static_cast<std::size_t>(index)];
}

Endpoint* TcpTransport::endpoint(int peer, int channel) noexcept {
  Peer* const found = find(peer);
  if (found == nullptr || channel < 0 ||
      static_cast<std::size_t>(channel) >= found->endpoints.size()) {
    return nullptr;
  }
  return found->endpoints[static_cast<std::size_t>(channel)].get();
}

std::size_t TcpTransport::endpoint_bytes(int slots, std::size_t slot_bytes) const noexcept {
  return round_up(TcpEndpoint::memory_bytes(slots, slot_bytes), 4096);
}

TransportMemory TcpTransport::memory() const noexcept {
  if (arena_ == nullptr) return {};
  TransportMemory now{.reserved = arena_bytes_};
  if (sys().resident(arena_, arena_bytes_, &now.fifos) < 0) now.fifos = 0;
  const auto add = [&](int fd) {
    std::array<std::uint32_t, SK_MEMINFO_VARS> info{};
    socklen_t size = sizeof info;
    if (sys().getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info.data(), &size) < 0) return;
    now.kernel += std::size_t{info[SK_MEMINFO_RMEM_ALLOC]} + info[SK_MEMINFO_WMEM_QUEUED];
  };
  for (const Peer& peer : peers_) {
    add(peer.control.get());
    now.fixed += sizeof peer;
    for (const auto& endpoint : peer.endpoints) {
      add(endpoint->fd());
      now.fixed += sizeof *endpoint;
    }
  }
  return now;
}

void TcpTransport::block(std::uint64_t max_ns) noexcept {
  std::array<epoll_event, 16> events;
  const auto each_full = [this](auto&& act) {
    for (const Peer& peer : peers_) {
      for (const std::unique_ptr<TcpEndpoint>& endpoint : peer.endpoints) {
        if (!endpoint->flushed() && endpoint->fd() >= 0) act(endpoint->fd());
      }
    }
  };
  // Sockets report room only during a sleep: a report costs a little at every acknowledgement.
  each_full([this](int fd) {
    static_cast<void>(sys().epoll_add(full_epoll_.get(), fd, EPOLLOUT | EPOLLET, 0));
  });
  const int result = epoll_.valid() ? sys().epoll_wait(epoll_.get(), events, max_ns) : -EBADF;
  each_full([this](int fd) { static_cast<void>(sys().epoll_remove(full_epoll_.get(), fd)); });
  if (result < 0) sys().sleep_ns(std::min<std::uint64_t>(max_ns, 200'000));
}

} // namespace whorl
