#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/membership.h"
#include "base/status.h"
#include "base/system.h"
#include "net/mesh.h"
#include "transports/control/heartbeat.h"
#include "transports/control/judge.h"
#include "transports/control/wire.h"
#include "transports/transport.h"

namespace whorl {

/// Prepares a socket to be closed so that the peer can still read all that was written: sends the
/// end of the stream and discards data that has arrived, using `scratch`. Closing a socket with
/// unread data makes TCP send a reset instead, and the peer may lose data that it has not read.
/// Does not wait: a peer that sends even later, by calls that this rank does not make, is reset all
/// the same.
void close_gently(int fd, std::span<std::byte> scratch) noexcept;

/// Control sockets to the peers of a transport between hosts, for errors and goodbyes. The end of a
/// socket means the death of the peer. Beats tell a rank that waits within 3 s of a host or a link
/// that has vanished; outages of less than 2 s, with some time between them, are survived. All
/// calls from any thread once adopt() has returned.
class ControlLinks final : public FailureJudge {
 public:
  ControlLinks() = default;
  ControlLinks(const ControlLinks&) = delete;
  ControlLinks& operator=(const ControlLinks&) = delete;
  ~ControlLinks() override;

  /// Takes the control socket of each of `peers` out of `links`, which may have others besides.
  /// `membership` outlives this object.
  Status adopt(const Membership& membership, std::span<MeshLink> links, const char* transport);
  /// Returns a descriptor that becomes readable when a control socket has news (edge-triggered);
  /// −1 before adopt().
  int epoll() const noexcept { return epoll_.get(); }
  /// Returns the control sockets, one for each peer.
  std::vector<int> sockets() const;

  /// Function that counts the bytes which the connections for data to a peer have carried so far,
  /// in both directions; repetitions do not count.
  using Carried = std::function<std::uint64_t(int peer)>;
  /// Lets a peer count as reachable while its connections for data carry something: behind a long
  /// queue of data on the way, beats are late. To be called before others use this object.
  void watch_data(Carried carried) { carried_ = std::move(carried); }

  /// Sends the error because of which this rank has given up; only the first call sends anything.
  void notify_peers(const Status& comm_error) noexcept;
  /// Sends a goodbye, after the error if the communicator has one: other ranks could take the
  /// leaving for the cause. The first step of a transport's destruction. `last_words`, if given,
  /// returns bytes that go to the peer with the goodbye, at most FrameHeader::kMaxTextBytes.
  void leave(const std::function<std::vector<std::byte>(int peer)>& last_words = {}) noexcept;
  /// Sends bytes of the transport to a peer: few, since what the socket has no room for is lost.
  void send_word(int peer, std::span<const std::byte> bytes) noexcept;
  /// Does what Transport::tell_stuck() and find_stuck() say.
  void tell_stuck(StuckOperation operation, std::span<const std::uint32_t> sent) noexcept;
  std::optional<StuckOperation> find_stuck(int peer) noexcept;
  /// Does what Transport::is_lost() says; goes on looking after a failure.
  bool is_lost(int peer) noexcept;
  /// Function that takes bytes of the transport from a peer.
  using Listener = std::function<void(int peer, std::span<const std::byte> bytes)>;
  /// Reads what peers have sent, sends beats, and finds peers that have died or vanished. To be
  /// called at least every few hundredths of a second while this rank waits. Calls `on_goodbye`, if
  /// given, once for each peer that has said goodbye, with the bytes that came with that, and
  /// `on_word`, if given, for each call of send_word() by a peer.
  void poll(const Listener& on_goodbye = {}, const Listener& on_word = {}) noexcept;
  /// Sets the error of a peer whose control socket has ended without a goodbye, for a rank that has
  /// waited without progress for `waited_ns`, or only asks, 0: after a long wait only, because the
  /// peer may have done all that the others need. Who does need it finds the end of its data, too.
  void judge_deaths(std::uint64_t waited_ns) noexcept;

  Progress connection_lost(int peer, int error, bool needed) noexcept override;
  /// Does the same for a link that has failed for a reason which errno does not know, a sentence,
  /// and whose peer may leave in good order.
  Progress connection_lost(int peer, const std::string& why) noexcept;
  void malformed(int peer, const char* what) noexcept override;

 private:
  struct Peer {
    int rank = -1;
    StreamSocket socket;
    // The rest is guarded by state_mutex_.
    std::array<std::byte, sizeof(control::FrameHeader) + control::FrameHeader::kMaxTextBytes>
        frame{};
    std::size_t frame_bytes = 0;
    bool said_goodbye = false;
    bool goodbye_told = false; ///< whether poll() has called its function for the goodbye
    std::vector<std::byte> last_words;
    std::vector<std::vector<std::byte>> words; ///< words of which poll() has told nobody
    bool ended = false;
    bool unreachable = false;  ///< whether the peer has been found to be silent
    std::uint64_t died_ns = 0; ///< time at which the socket ended without a goodbye; 0: it has not
    Heartbeat heartbeat;
    std::uint64_t carried = 0;    ///< bytes that carried_ has counted; 0: no beat is late
    std::uint64_t carried_ns = 0; ///< time at which that was found to have grown; 0: it has not
    std::optional<StuckOperation> stuck;
    std::uint64_t data_lost_ns = 0; ///< time at which the first data link ended; 0: none has
    int data_error = 0;
    std::string data_why; ///< reason of the failure where there is no errno
  };

  // In links.cc.
  /// Turns on the kernel's probes of a silent peer; returns −errno if the kernel refuses.
  static int probe_silence(int socket) noexcept;
  void beat(std::uint64_t now_ns) noexcept;
  bool carries(Peer& peer, std::uint64_t now_ns) const noexcept;
  Peer* find(int rank) noexcept;

  // In links_frames.cc.
  void send(Peer& peer, control::FrameKind kind, std::string_view text) noexcept;
  void read(Peer& peer) noexcept;
  void take_frame(Peer& peer, const control::FrameHeader& header, std::string_view text) noexcept;
  void take_error(const Peer& peer, std::string_view text) noexcept;
  void count_beat(Peer& peer) noexcept;

  // In links_failures.cc.
  Progress judge(Peer& peer, bool needed) noexcept;
  void set_unreachable(Peer& peer, std::string_view sign) noexcept;
  void set_death_error(Peer& peer, int error) noexcept;
  void set_changed_error(int rank) noexcept;
  void set_error(Code code, std::string message) noexcept;

  const Membership* membership_ = nullptr;
  std::vector<Peer> peers_; ///< ascending by rank
  Carried carried_;         ///< function of watch_data(); may be empty
  Fd epoll_;
  std::atomic<bool> goodbyes_untold_{false}; ///< whether poll() has to call `on_goodbye`
  std::atomic<bool> words_untold_{false};    ///< whether poll() has to call `on_word`
  std::atomic<bool> deaths_{false};          ///< whether a socket has ended without a goodbye
  std::atomic<std::uint64_t> next_beat_ns_{0};
  std::mutex state_mutex_; ///< guard of the state that comes from control sockets
  /// Guard of writing frames, one at a time, and of `connected_` and `notified_`. Taken after
  /// state_mutex_.
  std::mutex notify_mutex_;
  bool connected_ = false; ///< whether control sockets may be written to
  bool notified_ = false;  ///< whether an error was sent
};

} // namespace whorl
