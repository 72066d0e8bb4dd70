#include "transports/tcp/transport.h"

#include <fmt/core.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>

#include "base/descriptor_error.h"

namespace whorl {
namespace {

// Costs for the cost model: between two processes of one machine, over loopback or between two
// network namespaces (docs/results/tcp_2026-11-21.md); and between two machines, over a switch with
// 25 Gbit/s.
constexpr double kOverheadUs = 4.0;
constexpr double kAlphaUs = 6.0, kBetaUsPerKib = 0.2;
constexpr double kFarAlphaUs = 20.0, kFarBetaUsPerKib = 0.35;
// What encryption adds at each side (docs/results/encryption_2026-11-27.md).
constexpr double kSealUs = 0.4, kSealUsPerKib = 0.24;

constexpr std::uint32_t kReadable = EPOLLIN | EPOLLRDHUP | EPOLLET;

} // namespace

TcpTransport::~TcpTransport() {
  control_.leave();
  for (Peer& peer : peers_) {
    for (const std::unique_ptr<TcpEndpoint>& endpoint : peer.endpoints) {
      if (endpoint != nullptr) endpoint->close();
    }
  }
  peers_.clear();
}

Result<std::vector<std::byte>> TcpTransport::listen(const Identity&) {
  Result<TcpTuning> tuning = TcpTuning::from_environment();
  if (!tuning.ok()) return tuning.status();
  tuning_ = *std::move(tuning);
  auto addresses = ports_.bind();
  if (!addresses.ok()) return addresses;
  for (const Listener& listener : ports_.bound()) {
    if (listener.socket.valid()) WHORL_TRY(tuning_.prepare(listener.socket.get()));
  }
  return addresses;
}

Reach TcpTransport::reach(const PeerInfo& self, const PeerInfo& peer, std::size_t index) const {
  const bool far = self.machine_key != peer.machine_key;
  // No connection is quicker than the NICs, nor than one within a machine.
  const double rate = std::min(self.place.nic_gb_per_s, peer.place.nic_gb_per_s);
  const double beta = rate > 0 ? std::max(kBetaUsPerKib, 1.024 / rate) : kFarBetaUsPerKib;
  Reach reach{.reachable = PeerPorts::have_addresses(self, peer, index),
              .alpha_us = far ? kFarAlphaUs : kAlphaUs,
              .overhead_us = kOverheadUs,
              .beta_us_per_kib = far ? beta : kBetaUsPerKib,
              .networked = true};
  if (encrypts_) {
    reach.alpha_us += 2 * kSealUs;
    reach.overhead_us += kSealUs;
    reach.beta_us_per_kib += 2 * kSealUsPerKib;
  }
  return reach;
}

Status TcpTransport::connect(const Membership& membership, std::span<const int> peers,
                             std::size_t index) {
  membership_ = &membership;
  Result<std::vector<MeshLink>> links = ports_.connect(
      membership, peers, index,
      {.data = membership.channels, .congestion = tuning_.congestion(), .encrypts = encrypts_});
  if (!links.ok()) return links.status();
  return adopt(*std::move(links), peers);
}

Status TcpTransport::adopt(std::vector<MeshLink> links, std::span<const int> peers) {
  for (const MeshLink& link : links) {
    if (link.socket.encrypts() == encrypts_) continue;
    return Status::error(
        Code::kInternalError,
        fmt::format("the connection to {} is {}, against WHORL_ENCRYPT",
                    membership_->describe(link.rank), encrypts_ ? "not encrypted" : "encrypted"));
  }
  const auto channels = static_cast<std::size_t>(membership_->channels);
  const std::size_t each = slot_memory(membership_->slots, membership_->slot_bytes);
  auto memory = SlotMemory::map(each * channels * peers.size(), SlotMemory::Backing::kOnUse,
                                fmt::format("{} TCP connections", channels * peers.size()));
  if (!memory.ok()) return memory.status();
  memory_ = *std::move(memory);
  epoll_.reset(sys().epoll_create());
  full_epoll_.reset(sys().epoll_create());
  WHORL_TRY(control_.adopt(*membership_, links, "TCP"));
  int error = std::min(epoll_.get(), full_epoll_.get());
  for (const int watched : {control_.epoll(), full_epoll_.get()}) {
    if (error >= 0) error = sys().epoll_add(epoll_.get(), watched, kReadable, 0);
  }
  if (error < 0) {
    return Status::error(
        Code::kSystemError,
        fmt::format("the TCP connections cannot be watched: {}", descriptor_error(error)));
  }

  peers_ = std::vector<Peer>(peers.size());
  peer_of_rank_.assign(static_cast<std::size_t>(membership_->nranks), -1);
  for (std::size_t i = 0; i < peers.size(); ++i) {
    peers_[i].rank = peers[i];
    peers_[i].endpoints.resize(channels);
    peer_of_rank_[static_cast<std::size_t>(peers[i])] = static_cast<int>(i);
  }
  std::byte* next = memory_.data();
  for (MeshLink& link : links) {
    if (link.role != SocketRole::kData) continue;
    find(link.rank)->endpoints[link.channel] =
        std::make_unique<TcpEndpoint>(std::move(link.socket), link.rank, membership_->slots,
                                      membership_->slot_bytes, std::span(next, each), control_);
    next += each;
  }
  for (const Peer& peer : peers_) WHORL_TRY(watch(peer));
  control_.watch_data([this](int peer) { return carried(peer); });
  return {};
}

/// Counts the bytes that the data sockets of a peer have carried so far, in both directions.
std::uint64_t TcpTransport::carried(int peer) noexcept {
  std::uint64_t bytes = 0;
  for (const std::unique_ptr<TcpEndpoint>& endpoint : find(peer)->endpoints) {
    // The kernel's tcp_info; that of netinet/tcp.h ends before the fields tcpi_bytes_acked and
    // tcpi_bytes_received.
    constexpr std::size_t kAcked = 120 / 8, kReceived = 128 / 8;
    std::array<std::uint64_t, kReceived + 1> info{};
    socklen_t size = sizeof info;
    if (sys().getsockopt(endpoint->fd(), IPPROTO_TCP, TCP_INFO, info.data(), &size) < 0) continue;
    bytes += info[kAcked] + info[kReceived];
  }
  return bytes;
}

/// Registers the data sockets of a peer.
Status TcpTransport::watch(const Peer& peer) {
  int result = 0;
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

std::size_t TcpTransport::slot_memory(int slots, std::size_t slot_bytes) noexcept {
  return round_up(TcpEndpoint::memory_bytes(slots, slot_bytes), 4096);
}

std::size_t TcpTransport::endpoint_bytes(int slots, std::size_t slot_bytes) const noexcept {
  return slot_memory(slots, slot_bytes) + (encrypts_ ? SealedStream::kMemoryBytes : 0);
}

TransportMemory TcpTransport::memory() const noexcept {
  if (!memory_) return {};
  TransportMemory now{.reserved = memory_.bytes(), .fifos = memory_.resident()};
  const auto add = [&](int fd) {
    std::array<std::uint32_t, SK_MEMINFO_VARS> info{};
    socklen_t size = sizeof info;
    if (sys().getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info.data(), &size) < 0) return;
    now.kernel += std::size_t{info[SK_MEMINFO_RMEM_ALLOC]} + info[SK_MEMINFO_WMEM_QUEUED];
  };
  for (const int socket : control_.sockets()) add(socket);
  for (const Peer& peer : peers_) {
    now.fixed += sizeof peer;
    for (const auto& endpoint : peer.endpoints) {
      add(endpoint->fd());
      now.fixed += sizeof *endpoint + (encrypts_ ? SealedStream::kMemoryBytes : 0);
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
