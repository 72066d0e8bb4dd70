#include "transports/control/links.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "transports/error_text.h"

namespace whorl {
namespace {

// The kernel's probes find peers that do not read their beats, and end sockets that nobody looks
// at. No TCP_USER_TIMEOUT: one lost probe would then end the connection.
constexpr int kKeepIdleS = 1;
constexpr int kKeepIntervalS = 1;
constexpr int kKeepCount = 5;

// Time in which the control socket may explain the end of a data socket. Larger: better
// explanations over slow networks. Smaller: faster errors where no explanation comes.
constexpr std::uint64_t kExplainNs = 20'000'000;

// Words of a peer of which poll() has told nobody: several times the rails of all channels, and a
// bound of memory for transports that ask for no words.
constexpr std::size_t kMaxWords = 1024;

} // namespace

void close_gently(int fd, std::span<std::byte> scratch) noexcept {
  constexpr int kMaxReads = 64; // bound for a peer that keeps on sending
  if (fd < 0) return;
  static_cast<void>(sys().shutdown_send(fd));
  for (int i = 0; i < kMaxReads; ++i) {
    iovec part{scratch.data(), scratch.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (sys().recvmsg(fd, &message) <= 0) break;
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
    return Status::error(Code::kSystemError,
                         "epoll_create failed; raise the limit on open files (ulimit -n)");
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
  int result = sys().setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  const auto set = [&](int option, int value) {
    if (result >= 0) result = sys().setsockopt(socket, IPPROTO_TCP, option, value);
  };
  set(TCP_KEEPIDLE, kKeepIdleS);
  set(TCP_KEEPINTVL, kKeepIntervalS);
  set(TCP_KEEPCNT, kKeepCount);
  set(TCP_THIN_LINEAR_TIMEOUTS, 1); // lost beats are repeated soon
  return result;
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

/// Sends a frame; the caller holds notify_mutex_.
void ControlLinks::send(Peer& peer, control::FrameKind kind, std::string_view text) noexcept {
  if (!connected_) return;
  control::FrameHeader header;
  header.kind = static_cast<std::uint16_t>(kind);
  text = text.substr(0, control::FrameHeader::kMaxTextBytes);
  header.text_bytes = static_cast<std::uint32_t>(text.size());
  const std::array<iovec, 2> parts{
      {{&header, sizeof header}, {const_cast<char*>(text.data()), text.size()}}};
  // The socket always has room, because Heartbeat limits the frames that a peer has not read.
  // Should it be full all the same, the peer must not see the rest of the next frame as the end of
  // this one: that was the last frame. An encrypted connection ends then even if the socket has
  // taken nothing, since the frame has used up the number of a record, and may not be encrypted
  // again, but lies in memory that does not last until the socket has room.
  const ssize_t sent = peer.socket.send(parts);
  if ((sent >= 0 && static_cast<std::size_t>(sent) < sizeof header + text.size()) ||
      peer.socket.sending()) {
    static_cast<void>(sys().shutdown_send(peer.socket.get()));
  }
}

void ControlLinks::set_error(Code code, std::string message) noexcept {
  membership_->comm_error->set(Status::error(code, std::move(message)));
}

void ControlLinks::set_unreachable(Peer& peer, std::string_view sign) noexcept {
  peer.unreachable = true;
  set_error(
      Code::kRemoteError,
      fmt::format("{} cannot be reached any more: its host or the network between is down ({})",
                  membership_->describe(peer.rank), sign));
}

void ControlLinks::set_death_error(Peer& peer, int error) noexcept {
  const std::string who = membership_->describe(peer.rank);
  if (error == -ETIMEDOUT || error == -EHOSTUNREACH || error == -ENETUNREACH) {
    set_unreachable(peer, errno_text(error));
  } else if (error == 0 || error == -ECONNRESET || error == -EPIPE) {
    set_error(
        Code::kRemoteError,
        fmt::format("{} died: its connections were closed without a goodbye; look for the end of "
                    "that process in its own output",
                    who));
  } else if (error == -EBADMSG) {
    set_changed_error(peer.rank);
  } else {
    set_error(Code::kRemoteError,
              fmt::format("the connection to {} failed: {}", who, errno_text(error)));
  }
}

/// Sets the error of an encrypted connection on which something has come that the peer has not
/// sent.
void ControlLinks::set_changed_error(int rank) noexcept {
  membership_->comm_error->set(
      changed_on_the_way(membership_->describe(rank), membership_->describe(membership_->rank)));
}

Progress ControlLinks::connection_lost(int rank, int error) noexcept {
  const std::lock_guard lock(state_mutex_);
  if (membership_->comm_error->is_set()) return Progress::kFailed;
  if (error == -EBADMSG) { // nothing explains that better
    set_changed_error(rank);
    return Progress::kFailed;
  }
  Peer& peer = *find(rank);
  if (peer.data_lost_ns == 0) peer.data_error = error;
  return judge(peer);
}

Progress ControlLinks::connection_lost(int rank, const std::string& why) noexcept {
  const std::lock_guard lock(state_mutex_);
  if (membership_->comm_error->is_set()) return Progress::kFailed;
  Peer& peer = *find(rank);
  if (peer.data_lost_ns == 0) peer.data_why = why;
  return judge(peer);
}

/// Sets the error of a peer whose link for data has failed, once nothing explains it better. The
/// caller holds state_mutex_.
Progress ControlLinks::judge(Peer& peer) noexcept {
  if (peer.data_lost_ns == 0) peer.data_lost_ns = sys().now_ns();
  // A peer may have left because of an error, or of the death of a third rank. Its error explains
  // more than the end of a data socket does, and may be on its way.
  for (Peer& any : peers_) read(any);
  if (membership_->comm_error->is_set()) return Progress::kFailed;
  // The end of the control socket comes after all that it explains.
  if (!peer.ended && sys().now_ns() - peer.data_lost_ns < kExplainNs) return Progress::kIdle;
  if (!peer.said_goodbye && peer.data_why.empty()) {
    set_death_error(peer, peer.data_error);
  } else if (!peer.said_goodbye) {
    set_error(Code::kRemoteError,
              fmt::format("the connection of rank {} to {} failed: {}", membership_->rank,
                          membership_->describe(peer.rank), peer.data_why));
  } else {
    set_error(Code::kRemoteError, text_of_leaving(*membership_, peer.rank));
  }
  return Progress::kFailed;
}

void ControlLinks::malformed(int rank, const char* what) noexcept {
  set_error(Code::kRemoteError,
            fmt::format("{} sent {}: do all ranks use the same release and settings of whorl?",
                        membership_->describe(rank), what));
}

/// Reads everything that has arrived on a control socket. The caller holds state_mutex_.
void ControlLinks::read(Peer& peer) noexcept {
  while (!peer.ended) {
    const ssize_t got = peer.socket.receive(std::span(peer.frame).subspan(peer.frame_bytes));
    if (got == -EAGAIN) return;
    if (got <= 0) {
      peer.ended = true;
      if (peer.said_goodbye) return;
      if (got != 0 && got != -ECONNRESET && got != -EPIPE) {
        set_death_error(peer, static_cast<int>(got));
        return;
      }
      peer.died_ns = sys().now_ns();
      deaths_.store(true, std::memory_order_relaxed);
      return;
    }
    peer.frame_bytes += static_cast<std::size_t>(got);
    for (;;) {
      control::FrameHeader header;
      if (peer.frame_bytes < sizeof header) break;
      std::memcpy(&header, peer.frame.data(), sizeof header);
      if (!header.sane()) {
        peer.ended = true;
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

void ControlLinks::take_frame(Peer& peer, const control::FrameHeader& header,
                              std::string_view text) noexcept {
  const auto bytes = std::as_bytes(std::span(text));
  switch (static_cast<control::FrameKind>(header.kind)) {
    case control::FrameKind::kError:
      return take_error(peer, text);
    case control::FrameKind::kGoodbye:
      peer.last_words.assign(bytes.begin(), bytes.end());
      peer.said_goodbye = true;
      goodbyes_untold_.store(true, std::memory_order_relaxed);
      return;
    case control::FrameKind::kWord:
      if (peer.words.size() == kMaxWords) {
        peer.ended = true;
        return malformed(peer.rank, "too many words");
      }
      peer.words.emplace_back(bytes.begin(), bytes.end());
      words_untold_.store(true, std::memory_order_relaxed);
      return;
    case control::FrameKind::kStuck:
      if (bytes.size() != sizeof(StuckOperation)) return malformed(peer.rank, "a malformed report");
      std::memcpy(&peer.stuck.emplace(), bytes.data(), sizeof(StuckOperation));
      return count_beat(peer);
    case control::FrameKind::kBeat:
      return count_beat(peer);
    case control::FrameKind::kBeatsRead:
      peer.heartbeat.report();
      return;
  }
}

/// Takes the error because of which a peer has given up.
void ControlLinks::take_error(const Peer& peer, std::string_view text) noexcept {
  std::string clean = printable(text);
  if (clean.empty()) clean = membership_->describe(peer.rank) + " gave up and does not say why";
  set_error(Code::kRemoteError, std::move(clean));
}

/// Counts a frame among the beats of a peer, and reports to the peer if that is due.
void ControlLinks::count_beat(Peer& peer) noexcept {
  if (!peer.heartbeat.count()) return;
  const std::lock_guard lock(notify_mutex_);
  send(peer, control::FrameKind::kBeatsRead, {});
}

void ControlLinks::tell_stuck(StuckOperation operation,
                              std::span<const std::uint32_t> sent) noexcept {
  const std::lock_guard lock(state_mutex_);
  const std::lock_guard writing(notify_mutex_);
  for (Peer& peer : peers_) {
    if (!peer.heartbeat.add()) continue;
    operation.sent = sent.empty() ? 0 : sent[static_cast<std::size_t>(peer.rank)];
    send(peer, control::FrameKind::kStuck,
         {reinterpret_cast<const char*>(&operation), sizeof operation});
  }
}

std::optional<StuckOperation> ControlLinks::find_stuck(int rank) noexcept {
  const Peer* const peer = find(rank);
  const std::lock_guard lock(state_mutex_);
  return peer == nullptr ? std::nullopt : peer->stuck;
}

void ControlLinks::send_word(int rank, std::span<const std::byte> bytes) noexcept {
  Peer* const peer = find(rank);
  const std::lock_guard lock(notify_mutex_);
  if (peer == nullptr) return;
  send(*peer, control::FrameKind::kWord,
       {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
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
    switch (peer.heartbeat.next(now_ns, acknowledged)) {
      case Heartbeat::Action::kNone:
        break;
      case Heartbeat::Action::kSend: {
        const std::lock_guard writing(notify_mutex_);
        send(peer, control::FrameKind::kBeat, {});
        break;
      }
      case Heartbeat::Action::kEnd:
        read(peer); // its own words explain more
        if (!peer.ended && !peer.said_goodbye) {
          constexpr double kSeconds = static_cast<double>(Heartbeat::kSilenceNs) * 1e-9;
          set_unreachable(peer, fmt::format("no answer for {:.1f} s", kSeconds));
        }
        break;
    }
  }
}

void ControlLinks::judge_deaths(std::uint64_t waited_ns) noexcept {
  if (!deaths_.load(std::memory_order_relaxed) || (waited_ns != 0 && waited_ns < kAfterDeathNs)) {
    return;
  }
  const std::lock_guard lock(state_mutex_);
  const std::uint64_t now = sys().now_ns();
  for (Peer& peer : peers_) {
    if (peer.died_ns != 0 && now - peer.died_ns >= kAfterDeathNs) set_death_error(peer, 0);
  }
}

bool ControlLinks::is_lost(int peer) noexcept {
  poll();
  const std::lock_guard lock(state_mutex_);
  const Peer* const found = find(peer);
  return found != nullptr && (found->ended || found->said_goodbye || found->unreachable);
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
