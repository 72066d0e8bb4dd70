#include "transports/tcp/transport.h"

#include <fmt/core.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace whorl {
namespace {

// For the cost model: two processes of one machine, over loopback or between two network
// namespaces (docs/results/tcp_2026-11-21.md); and of two machines, by 25 Gbit/s and a switch.
constexpr double kOverheadUs = 4.0;
constexpr double kAlphaUs = 6.0, kBetaUsPerKib = 0.2;
constexpr double kFarAlphaUs = 20.0, kFarBetaUsPerKib = 0.35;

// A host or link that has vanished without a word is noticed after 2 to 3 s. Only the control
// socket gets these settings: TCP_USER_TIMEOUT also ends a connection whose peer is alive but has
// not made room for more data for that long, and a rank may well be late by more than that. The
// control socket carries next to nothing, so its window is never full, and being idle it is probed.
constexpr int kUserTimeoutMs = 2000;
constexpr int kKeepIdleS = 1;
constexpr int kKeepIntervalS = 1;
constexpr int kKeepCount = 2;

// How long the control socket may take to explain the end of a data socket. Larger: better
// explanations over slow networks. Smaller: faster errors where there is none.
constexpr std::uint64_t kExplainNs = 20'000'000;

constexpr std::uint32_t kReadable = EPOLLIN | EPOLLRDHUP | EPOLLET;

/// The addresses that a card offers to a rank on another host, or on the same one.
Result<std::vector<SocketAddress>> addresses_of(const RankCard& card, std::size_t index,
                                                bool same_host) {
  const auto bad = [&] {
    return Status::error(Code::kInternalError,
                         fmt::format("the TCP address of rank {} is malformed", card.rank));
  };
  if (index >= card.addresses.size()) return bad();
  const RankCard::Address& field = card.addresses[index];
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
  // A rank that leaves because of an error says so: the others could take its leaving for the
  // cause.
  if (membership_ != nullptr && membership_->verdict->raised())
    tell(membership_->verdict->status());
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

Reach TcpTransport::reach(const RankCard& self, const RankCard& peer, std::size_t index) const {
  if (index >= self.addresses.size()) return {};
  const bool both = self.addresses[index].size > 0 && peer.addresses[index].size > 0;
  const bool far = self.machine_key != peer.machine_key;
  return {.reachable = both,
          .alpha_us = far ? kFarAlphaUs : kAlphaUs,
          .overhead_us = kOverheadUs,
          .beta_us_per_kib = far ? kFarBetaUsPerKib : kBetaUsPerKib,
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
  plan.verdict = membership.verdict;
  plan.describe = [&](int rank) { return membership.describe(rank); };
  const RankCard& self = membership.cards[static_cast<std::size_t>(membership.rank)];
  for (const int peer : peers) {
    const RankCard& card = membership.cards[static_cast<std::size_t>(peer)];
    std::vector<SocketAddress> addresses;
    if (peer < membership.rank) {
      Result<std::vector<SocketAddress>> found =
          addresses_of(card, index, card.host_key == self.host_key);
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

/// Opens the ports at which the expected peers come: loopback for those of this host, the others
/// for those of other hosts, and what there is where one of the two is missing. Drops the rest.
Status TcpTransport::listen_for(const Membership& membership,
                                std::span<const MeshExpected> expected) {
  const auto host = [&](int rank) {
    return membership.cards[static_cast<std::size_t>(rank)].host_key;
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
  const std::lock_guard lock(tell_mutex_);
  connected_ = true;
  return {};
}

/// Registers the sockets of a peer and turns on the probes that find a silent death.
Status TcpTransport::watch(const Peer& peer) {
  int result = sys().setsockopt(peer.control.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  const auto set = [&](int option, int value) {
    if (result >= 0) result = sys().setsockopt(peer.control.get(), IPPROTO_TCP, option, value);
  };
  set(TCP_KEEPIDLE, kKeepIdleS);
  set(TCP_KEEPINTVL, kKeepIntervalS);
  set(TCP_KEEPCNT, kKeepCount);
  set(TCP_USER_TIMEOUT, kUserTimeoutMs);
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

// --- verdicts and deaths ---

void TcpTransport::tell(const Status& verdict) noexcept {
  {
    const std::lock_guard lock(tell_mutex_);
    if (told_) return;
    told_ = true;
  }
  try {
    // What another rank did already says who; forwarding it must not add a name each time.
    const bool forwarded = verdict.code() == Code::kRemoteError || membership_ == nullptr;
    send_control(tcp::ControlKind::kVerdict,
                 forwarded ? verdict.message()
                           : fmt::format("{} gave up: {}", membership_->describe(membership_->rank),
                                         verdict.message()));
  } catch (const std::bad_alloc&) {
    send_control(tcp::ControlKind::kVerdict, "a rank gave up and has no memory left to say why");
  }
}

void TcpTransport::send_control(tcp::ControlKind kind, std::string_view text) noexcept {
  const std::lock_guard lock(tell_mutex_);
  if (!connected_) return;
  tcp::ControlHeader header;
  header.kind = static_cast<std::uint16_t>(kind);
  text = text.substr(0, tcp::ControlHeader::kMaxTextBytes);
  header.text_bytes = static_cast<std::uint32_t>(text.size());
  for (const Peer& peer : peers_) {
    std::array<iovec, 2> parts{
        {{&header, sizeof header}, {const_cast<char*>(text.data()), text.size()}}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    // Two frames at most are ever sent, so the socket always has room; a peer that is gone does not
    // need the frame.
    static_cast<void>(sys().sendmsg(peer.control.get(), &message));
  }
}

void TcpTransport::raise(Code code, std::string message) noexcept {
  membership_->verdict->raise(Status::error(code, std::move(message)));
}

void TcpTransport::raise_death(const Peer& peer, int error) noexcept {
  const std::string who = membership_->describe(peer.rank);
  if (error == -ETIMEDOUT || error == -EHOSTUNREACH || error == -ENETUNREACH) {
    raise(Code::kRemoteError,
          fmt::format("{} cannot be reached any more: its host or the network between is down ({})",
                      who, errno_text(error)));
  } else if (error == 0 || error == -ECONNRESET || error == -EPIPE) {
    raise(Code::kRemoteError,
          fmt::format("{} died: its connections were closed without a goodbye; look for the end of "
                      "that process in its own output",
                      who));
  } else {
    raise(Code::kRemoteError,
          fmt::format("the connection to {} failed: {}", who, errno_text(error)));
  }
}

Progress TcpTransport::connection_lost(int rank, int error) noexcept {
  const std::lock_guard lock(state_mutex_);
  if (membership_->verdict->raised()) return Progress::kFailed;
  Peer& peer = *find(rank);
  if (peer.data_lost_ns == 0) {
    peer.data_lost_ns = sys().now_ns();
    peer.data_error = error;
  }
  // A verdict, or the death of a third rank because of which this one has left, explains more than
  // the end of a data socket does, and it may be on its way.
  for (Peer& any : peers_) read_control(any);
  if (membership_->verdict->raised()) return Progress::kFailed;
  if (sys().now_ns() - peer.data_lost_ns < kExplainNs) return Progress::kIdle;
  if (!peer.said_goodbye) {
    raise_death(peer, peer.data_error);
  } else {
    raise(
        Code::kRemoteError,
        fmt::format("{} has destroyed its communicator while rank {} still exchanges data with it: "
                    "all ranks must make the same calls before they destroy it",
                    membership_->describe(rank), membership_->rank));
  }
  return Progress::kFailed;
}

void TcpTransport::malformed(int rank, const char* what) noexcept {
  raise(Code::kRemoteError,
        fmt::format("{} sent {}: do all ranks use the same release and settings of whorl?",
                    membership_->describe(rank), what));
}

/// Reads all there is on a control socket. Called with state_mutex_ held.
void TcpTransport::read_control(Peer& peer) noexcept {
  while (!peer.control_ended) {
    iovec part{peer.frame.data() + peer.frame_bytes, peer.frame.size() - peer.frame_bytes};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const ssize_t got = sys().recvmsg(peer.control.get(), &message);
    if (got == -EAGAIN) return;
    if (got <= 0) {
      peer.control_ended = true;
      if (!peer.said_goodbye) raise_death(peer, static_cast<int>(got));
      return;
    }
    peer.frame_bytes += static_cast<std::size_t>(got);
    for (;;) {
      tcp::ControlHeader header;
      if (peer.frame_bytes < sizeof header) break;
      std::memcpy(&header, peer.frame.data(), sizeof header);
      if (!header.sane()) {
        peer.control_ended = true;
        malformed(peer.rank, "a malformed control frame");
        return;
      }
      const std::size_t size = sizeof header + header.text_bytes;
      if (peer.frame_bytes < size) break;
      take_frame(
          peer, header,
          {reinterpret_cast<const char*>(peer.frame.data()) + sizeof header, header.text_bytes});
      std::memmove(peer.frame.data(), peer.frame.data() + size, peer.frame_bytes - size);
      peer.frame_bytes -= size;
    }
  }
}

void TcpTransport::take_frame(Peer& peer, const tcp::ControlHeader& header,
                              std::string_view text) noexcept {
  if (header.kind == static_cast<std::uint16_t>(tcp::ControlKind::kGoodbye)) {
    peer.said_goodbye = true;
    return;
  }
  // The text is printed: nothing in it may drive a terminal.
  std::string clean(text);
  std::replace_if(
      clean.begin(), clean.end(),
      [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; }, ' ');
  if (clean.empty()) clean = membership_->describe(peer.rank) + " gave up and does not say why";
  raise(Code::kRemoteError, std::move(clean));
}

// --- waiting ---

void TcpTransport::nap(std::uint64_t max_ns) noexcept {
  std::array<epoll_event, 16> events;
  const auto each_full = [this](auto&& act) {
    for (const Peer& peer : peers_) {
      for (const std::unique_ptr<TcpEndpoint>& endpoint : peer.endpoints) {
        if (!endpoint->flushed() && endpoint->fd() >= 0) act(endpoint->fd());
      }
    }
  };
  // Sockets are asked about room only here: it would cost a little at every acknowledgement.
  each_full([this](int fd) {
    static_cast<void>(sys().epoll_add(full_epoll_.get(), fd, EPOLLOUT | EPOLLET, 0));
  });
  const int result = epoll_.valid() ? sys().epoll_wait(epoll_.get(), events, max_ns) : -EBADF;
  each_full([this](int fd) { static_cast<void>(sys().epoll_remove(full_epoll_.get(), fd)); });
  if (result < 0) sys().sleep_ns(std::min<std::uint64_t>(max_ns, 200'000));
}

void TcpTransport::look_around(std::uint64_t) noexcept {
  if (!control_epoll_.valid()) return;
  std::array<epoll_event, 16> events;
  const int count = sys().epoll_wait(control_epoll_.get(), events, 0);
  if (count <= 0) return;
  const std::lock_guard lock(state_mutex_);
  for (int i = 0; i < count; ++i) {
    read_control(peers_[events[static_cast<std::size_t>(i)].data.u64]);
  }
}

std::unique_ptr<Transport> make_tcp_transport() { return std::make_unique<TcpTransport>(); }

} // namespace whorl
