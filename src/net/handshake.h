#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/membership.h"
#include "base/status.h"
#include "base/system.h"
#include "base/wait.h"
#include "net/key_exchange.h"
#include "net/stream_socket.h"

namespace whorl {

/// Purpose of a connection. The two sides must agree.
enum class SocketRole : std::uint8_t {
  kBootstrap = 1, ///< connection of a rank to the root of the rendezvous
  kControl = 2,   ///< errors and goodbyes of transports between hosts
  kData = 3,      ///< messages of one channel of the TCP transport
  kShm = 4,       ///< descriptors of shared memory; a hang-up means that the peer has died
};

/// Name of one connection. `from` is the side that connects, `to` the side that accepts.
struct ConnectionName {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  SocketRole role = SocketRole::kData;
  std::uint32_t channel = 0;
  friend bool operator==(const ConnectionName&, const ConnectionName&) = default;
};

/// Reason why a handshake failed; sent to the other side where that gives away no secret.
enum class HandshakeFailure : std::uint8_t {
  kNone = 0,
  kProtocol = 1,   ///< the bytes are not whorl's
  kVersion = 2,    ///< another wire version
  kJob = 3,        ///< another communicator
  kName = 4,       ///< rank, role or channel is not expected here
  kSecret = 5,     ///< the proof is wrong
  kClosed = 6,     ///< closed or broken in the middle
  kSlow = 7,       ///< handshake was not finished in time
  kUser = 8,       ///< process of another user, where there is no secret
  kEncryption = 9, ///< one side encrypts, the other does not; both have proved who they are
};

/// Mutual authentication of a fresh stream socket (TCP or unix), as a state machine that never
/// blocks, so that one loop drives any number of connections and a silent one stalls no other.
///
///     connecting side                        accepting side
///     hello {magic, version, job, name, flags, nonce, share} ─▶
///                     ◀─ challenge {magic, version, failure, flags, nonce, share, HMAC over both}
///     proof {failure, HMAC over both} ─▶
///                                   ◀─ accepted {failure}
///
/// Both HMAC-SHA256 are keyed with the secret and cover the whole hello and the challenge's flags,
/// nonce and share, with different labels, so neither can be replayed or reflected. Every message
/// has a fixed size; exactly its bytes are read, so what follows the handshake stays in the socket.
///
/// The flags say whether a side encrypts what follows. If both do, each has sent a share
/// (KeyExchange), and take() returns a socket that encrypts; if only one does, both fail.
class Handshake {
 public:
  /// Time and bytes after which a connection that has not authenticated itself is dropped.
  static constexpr std::uint64_t kTimeoutNs = 2'000'000'000;
  static constexpr std::size_t kMaxUnauthenticatedBytes = 256;

  Handshake() = default;
  /// Starts the connecting side. The socket may still be connecting.
  static Handshake connecting(Fd socket, const Identity& identity, const ConnectionName& name,
                              bool encrypts = false);
  /// Starts the accepting side. The hello's `to` must be `rank`. Fails kTimeoutNs from now.
  static Handshake accepting(Fd socket, const Identity& identity, std::uint32_t rank,
                             bool encrypts = false);
  /// Starts the accepting side where the secret depends on the job that the other side names: after
  /// the hello the caller also reads job(), and calls admit() with the secret of that job.
  static Handshake accepting(Fd socket, std::uint32_t rank, bool encrypts = false);

  /// Moves as many bytes as possible. kDone: authenticated, take() the socket. kFailed: see
  /// failure() and status(). On the accepting side, kAdvanced is returned exactly once, after the
  /// hello: the caller then reads name() and calls either admit() or refuse().
  Progress step() noexcept;
  void admit() noexcept;
  void admit(const decltype(Identity::secret)& secret) noexcept;
  /// Sends the reason of the refusal to the other side, as far as that is possible without waiting.
  void refuse(HandshakeFailure failure) noexcept;

  int fd() const noexcept { return socket_.get(); }
  short events() const noexcept; ///< returns the events to poll() for
  /// Returns when this connection is given up (accepting side), or UINT64_MAX (connecting side).
  std::uint64_t deadline_ns() const noexcept { return deadline_ns_; }
  /// Returns, on the accepting side, whether no whole hello has come yet.
  bool silent() const noexcept { return state_ == State::kReadHello; }
  /// Returns the name of the connection; on the accepting side valid once step() has returned
  /// kAdvanced.
  const ConnectionName& name() const noexcept { return name_; }
  const decltype(Identity::job)& job() const noexcept { return identity_.job; }
  HandshakeFailure failure() const noexcept { return failure_; }
  /// Returns whether the handshake failed because the other side closed the connection.
  bool hung_up() const noexcept;
  /// Describes the failure in one sentence that does not name the peer: the caller can do that
  /// better.
  Status status() const;
  /// Returns, on the connecting side, whether the peer has proved that it knows the secret. Then
  /// this connection must be kept among several attempts, since the accepting side may already take
  /// it for established.
  bool peer_proved() const noexcept { return state_ == State::kSendProof || late(); }
  /// Returns the socket once step() has returned kDone.
  StreamSocket take() noexcept { return {std::move(socket_), std::move(sealed_)}; }

 private:
  enum class State : std::uint8_t {
    kNone,
    kSendHello,
    kReadChallenge,
    kSendProof,
    kReadAccepted,
    kReadHello,
    kDecide,
    kSendChallenge,
    kReadProof,
    kSendAccepted,
    kDone,
    kFailed,
  };
  static constexpr std::uint16_t kWireVersion = 5;
  static constexpr std::size_t kNonceBytes = 32;
  static constexpr std::size_t kMacBytes = 32;
  static constexpr std::size_t kShareBytes = sizeof(KeyExchange::Share);
  static constexpr std::size_t kHelloBytes = 4 + 4 + 16 + 16 + kNonceBytes + kShareBytes;
  static constexpr std::size_t kAnswerBytes = 4 + kNonceBytes + kShareBytes;
  static constexpr std::size_t kChallengeBytes = 4 + 4 + kAnswerBytes + kMacBytes;
  static constexpr std::size_t kProofBytes = 4 + kMacBytes;
  static constexpr std::size_t kAcceptedBytes = 4;
  static_assert(kHelloBytes + kProofBytes <= kMaxUnauthenticatedBytes);

  bool late() const noexcept { return state_ == State::kReadAccepted || state_ == State::kDone; }
  Progress send() noexcept;
  Progress receive(std::size_t size) noexcept;
  Progress next() noexcept;
  Progress fail(HandshakeFailure failure, int error = 0) noexcept;
  void start_sending(State state, std::span<const std::byte> message) noexcept;
  void start_reading(State state) noexcept;
  void check_hello() noexcept;
  bool check_challenge() noexcept;
  bool check_proof() noexcept;
  bool mac(std::string_view label, std::array<std::byte, kMacBytes>* out) const noexcept;
  bool agree_on_encryption() noexcept;
  std::string text_of_disagreement() const;

  Fd socket_;
  Identity identity_;
  ConnectionName name_;
  State state_ = State::kNone;
  HandshakeFailure failure_ = HandshakeFailure::kNone;
  bool any_job_ = false;      ///< true: the caller judges the job
  int error_ = 0;             ///< errno that goes with kClosed
  bool told_by_peer_ = false; ///< true: the other side has reported failure_
  std::uint32_t peer_version_ = 0;
  std::uint32_t rank_ = 0;
  std::uint64_t deadline_ns_ = UINT64_MAX;
  std::array<std::byte, kHelloBytes> hello_{};
  std::array<std::byte, kAnswerBytes> answer_{}; ///< flags, nonce and share of the challenge
  bool connects_ = false;
  bool encrypts_ = false;
  bool peer_encrypts_ = false;
  KeyExchange exchange_;
  KeyExchange::Share peer_share_{};
  std::unique_ptr<SealedStream> sealed_;
  std::array<std::byte, kMaxUnauthenticatedBytes> buffer_{}; ///< the message under way
  std::size_t size_ = 0;                                     ///< bytes of that message
  std::size_t moved_ = 0;                                    ///< bytes of that message moved so far
};

} // namespace whorl
