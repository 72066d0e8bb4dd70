#include "transports/control/links.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <utility>

#include "base/descriptor_error.h"
#include "base/log.h"
#include "net/keep_alive.h"
#include "transports/error_text.h"

namespace whorl {
namespace {

// The kernel's probes find peers that do not read their beats, and end sockets that nobody looks
// at. No TCP_USER_TIMEOUT: one lost probe would then end the connection.
constexpr KeepAlive kKeepAlive{.idle_s = 1, .interval_s = 1, .count = 5};

} // namespace

void close_gently(int fd, std::span<std::byte> scratch) noexcept {
  constexpr int kMaxReads = 64; // bound for a peer that keeps on sending
  if (fd < 0) return;
  static_cast<void>(sys().shutdown_send(fd));
  for (int i = 0; i < kMaxReads; ++i) {
    if (sys().recv(fd, scratch) <= 0) break;
  }
}

ControlLinks::~ControlLinks() {
  for (Peer& peer : peers_) close_gently(peer.socket.get(), peer.frame);
}

Status ControlLinks::adopt(const Membership& membership, std::span<MeshLink> links,
                           const char* transport) {
  membership_ = &membership;
  epoll_.reset(sys().epoll_create());
  if (!epoll_.valid()) {
    return Status::error(Code::kSystemError, fmt::format("the connections cannot be watched: {}",
                                                         descriptor_error(epoll_.get())));
  }
  for (MeshLink& link : links) {
    if (link.role != SocketRole::kControl) continue;
    Peer& peer = peers_.emplace_back();
    peer.rank = link.rank;
    peer.socket = std::move(link.socket);
    if (log_enabled(LogLevel::kInfo)) {
      log(LogLevel::kInfo, fmt::format("rank {}: {} connected by {}{}{}", membership.rank,
                                       membership.describe(link.rank), transport,
                                       link.via.empty() ? "" : " at ", link.via));
    }
  }
  std::sort(peers_.begin(), peers_.end(),
            [](const Peer& a, const Peer& b) { return a.rank < b.rank; });
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const int socket = peers_[i].socket.get();
    int result = probe_silence(socket);
    if (result >= 0)
      result = sys().epoll_add(epoll_.get(), socket, EPOLLIN | EPOLLRDHUP | EPOLLET, i);
    if (result >= 0) continue;
    return Status::error(Code::kSystemError,
                         fmt::format("the connection to {} cannot be watched: {}",
                                     membership.describe(peers_[i].rank), errno_text(result)));
  }
  const std::lock_guard lock(notify_mutex_);
  connected_ = true;
  return {};
}

std::vector<int> ControlLinks::sockets() const {
  std::vector<int> out;
  for (const Peer& peer : peers_) out.push_back(peer.socket.get());
  return out;
}

ControlLinks::Peer* ControlLinks::find(int rank) noexcept {
  const auto found = std::lower_bound(peers_.begin(), peers_.end(), rank,
                                      [](const Peer& peer, int r) { return peer.rank < r; });
  return found == peers_.end() || found->rank != rank ? nullptr : &*found;
}

void ControlLinks::leave(
    const std::function<std::vector<std::byte>(int peer)>& last_words) noexcept {
  if (membership_ == nullptr) return;
  if (membership_->comm_error->is_set()) notify_peers(membership_->comm_error->status());
  const std::lock_guard lock(notify_mutex_);
  for (Peer& peer : peers_) {
    const std::vector<std::byte> words =
        last_words ? last_words(peer.rank) : std::vector<std::byte>();
    send(peer, control::FrameKind::kGoodbye,
         {reinterpret_cast<const char*>(words.data()), words.size()});
  }
}

int ControlLinks::probe_silence(int socket) noexcept {
  const int result = keep_alive(socket, kKeepAlive);
  if (result < 0) return result;
  return sys().setsockopt(socket, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS,
                          1); // lost beats are repeated soon
}

void ControlLinks::notify_peers(const Status& comm_error) noexcept {
  const std::lock_guard lock(notify_mutex_);
  if (notified_) return;
  notified_ = true;
  if (membership_ == nullptr) return; // not connected
  with_error_text(*membership_, comm_error, [&](std::string_view text) {
    for (Peer& peer : peers_) send(peer, control::FrameKind::kError, text);
  });
}

/// Returns whether the connections for data to a peer, one of whose beats is late, have carried
/// something lately. Looks for the first time when the beat begins to be late.
bool ControlLinks::carries(Peer& peer, std::uint64_t now_ns) const noexcept {
  const std::uint64_t carried = carried_ ? carried_(peer.rank) : 0;
  if (carried != peer.carried) {
    if (peer.carried != 0) peer.carried_ns = now_ns;
    peer.carried = carried;
  }
  return peer.carried_ns != 0 && now_ns - peer.carried_ns < Heartbeat::kSilenceNs;
}

/// Sends due beats, and sets the error if a peer has not acknowledged one for too long.
void ControlLinks::beat(std::uint64_t now_ns) noexcept {
  constexpr std::uint64_t kLookNs = Heartbeat::kIntervalNs / 5;
  next_beat_ns_.store(now_ns + kLookNs, std::memory_order_relaxed);
  const std::lock_guard lock(state_mutex_);
  for (Peer& peer : peers_) {
    if (peer.ended || peer.said_goodbye || peer.unreachable) continue;
    const bool acknowledged = sys().unacknowledged(peer.socket.get()) <= 0;
    if (!acknowledged) {
      // Lets the kernel try again to send what it could not even send before, while the interface
      // was down; by itself it does so only after pauses that double.
      static_cast<void>(sys().setsockopt(peer.socket.get(), IPPROTO_TCP, TCP_NODELAY, 1));
    }
    if (acknowledged) peer.carried = peer.carried_ns = 0;
    switch (peer.heartbeat.next(now_ns, acknowledged)) {
      case Heartbeat::Action::kNone:
        if (peer.heartbeat.is_late(now_ns)) static_cast<void>(carries(peer, now_ns));
        break;
      case Heartbeat::Action::kSend: {
        const std::lock_guard writing(notify_mutex_);
        send(peer, control::FrameKind::kBeat, {});
        break;
      }
      case Heartbeat::Action::kEnd:
        if (carries(peer, now_ns)) break;
        read(peer); // its own words explain more
        if (!peer.ended && !peer.said_goodbye) {
          constexpr double kSeconds = static_cast<double>(Heartbeat::kSilenceNs) * 1e-9;
          set_unreachable(peer, fmt::format("no answer for {:.1f} s", kSeconds));
        }
        break;
    }
  }
}

void ControlLinks::poll(const Listener& on_goodbye, const Listener& on_word) noexcept {
  if (!epoll_.valid()) return;
  if (const std::uint64_t now = sys().now_ns();
      now >= next_beat_ns_.load(std::memory_order_relaxed)) {
    beat(now);
  }
  std::array<epoll_event, 16> events;
  const int count = sys().epoll_wait(epoll_.get(), events, 0);
  // connection_lost() may have read a goodbye or a word.
  if (count <= 0 && !(on_goodbye && goodbyes_untold_.load(std::memory_order_relaxed)) &&
      !(on_word && words_untold_.load(std::memory_order_relaxed))) {
    return;
  }
  const std::lock_guard lock(state_mutex_);
  for (int i = 0; i < count; ++i) {
    read(peers_[events[static_cast<std::size_t>(i)].data.u64]);
  }
  if (on_word && words_untold_.exchange(false, std::memory_order_relaxed)) {
    for (Peer& peer : peers_) {
      for (const std::vector<std::byte>& word : peer.words) on_word(peer.rank, word);
      peer.words.clear();
    }
  }
  if (!on_goodbye || !goodbyes_untold_.exchange(false, std::memory_order_relaxed)) return;
  for (Peer& peer : peers_) {
    if (!peer.said_goodbye || std::exchange(peer.goodbye_told, true)) continue;
    on_goodbye(peer.rank, peer.last_words);
  }
}

} // namespace whorl
