// Frames of control links: how they are sent, read and understood.
#include <array>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "base/printable.h"
#include "transports/control/links.h"

namespace whorl {
namespace {

// Words of a peer of which poll() has told nobody: several times the rails of all channels, and a
// bound of memory for transports that ask for no words.
constexpr std::size_t kMaxWords = 1024;

} // namespace

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

} // namespace whorl
