// The accepting side of handshakes.
#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "net/handshake.h"
#include "net/handshake_wire.h"
#include "net/secret.h"

namespace whorl {

using namespace handshake_wire;

Handshake Handshake::accepting(Fd socket, const Identity& identity, std::uint32_t rank,
                               bool encrypts) {
  Handshake h;
  h.socket_ = std::move(socket);
  h.identity_ = identity;
  h.rank_ = rank;
  h.encrypts_ = encrypts;
  h.deadline_ns_ = sys().now_ns() + kTimeoutNs;
  h.start_reading(State::kReadHello);
  return h;
}

Handshake Handshake::accepting(Fd socket, std::uint32_t rank, bool encrypts) {
  Handshake h = accepting(std::move(socket), Identity(), rank, encrypts);
  h.any_job_ = true;
  return h;
}

void Handshake::check_hello() noexcept {
  std::copy_n(buffer_.begin(), kHelloBytes, hello_.begin());
  ByteReader in(hello_);
  in.get<std::uint32_t>(); // magic, compared on arrival
  peer_version_ = in.get<std::uint16_t>();
  const auto role = in.get<std::uint16_t>();
  const auto job = in.get<std::array<std::byte, 16>>();
  name_.from = in.get<std::uint32_t>();
  name_.to = in.get<std::uint32_t>();
  name_.channel = in.get<std::uint32_t>();
  const auto flags = in.get<std::uint32_t>();
  in.get_bytes(kNonceBytes);
  peer_share_ = in.get<KeyExchange::Share>();
  // The version first: another version may lay out the rest in another way.
  if (peer_version_ != kWireVersion) return refuse(HandshakeFailure::kVersion);
  if ((flags & ~kEncrypts) != 0) return refuse(HandshakeFailure::kProtocol);
  peer_encrypts_ = flags == kEncrypts;
  if (any_job_) identity_.job = job;
  if (job != identity_.job) return refuse(HandshakeFailure::kJob);
  if (role < static_cast<std::uint16_t>(SocketRole::kBootstrap) ||
      role > static_cast<std::uint16_t>(SocketRole::kShm) || name_.to != rank_) {
    return refuse(HandshakeFailure::kName);
  }
  name_.role = static_cast<SocketRole>(role);
  state_ = State::kDecide;
}

void Handshake::admit(const decltype(Identity::secret)& secret) noexcept {
  identity_.secret = secret;
  admit();
}

void Handshake::admit() noexcept {
  if (state_ != State::kDecide) return;
  Digest proof{};
  std::array<std::byte, kNonceBytes> nonce{};
  KeyExchange::Share share{};
  if (sys().random_bytes(nonce) < 0 || (encrypts_ && !exchange_.make_share(&share))) {
    fail(HandshakeFailure::kProtocol);
    return;
  }
  put(put(put(answer_.data(), encrypts_ ? kEncrypts : 0), nonce), share);
  if (!mac("whorl accept", &proof)) {
    fail(HandshakeFailure::kProtocol);
    return;
  }
  std::array<std::byte, kChallengeBytes> message{};
  std::byte* out = message.data();
  out = put(out, kChallengeMagic);
  out = put(out, kWireVersion);
  out = put(out, std::uint16_t{0});
  out = put(out, answer_);
  put(out, proof);
  start_sending(State::kSendChallenge, message);
}

void Handshake::refuse(HandshakeFailure failure) noexcept {
  std::array<std::byte, kChallengeBytes> message{};
  std::byte* out = message.data();
  out = put(out, kChallengeMagic);
  out = put(out, kWireVersion);
  put(out, static_cast<std::uint16_t>(failure));
  // One attempt is enough: a fresh socket has room for the message, and nothing of ours depends on
  // it.
  start_sending(State::kSendChallenge, message);
  static_cast<void>(send());
  fail(failure);
}

bool Handshake::check_proof() noexcept {
  if (buffer_[0] != std::byte{0}) {
    told_by_peer_ = true;
    fail(to_failure(static_cast<std::uint8_t>(buffer_[0])));
    return false;
  }
  Digest ours{};
  if (!mac("whorl connect", &ours)) { // this process ends: no fault of the other side's secret
    fail(HandshakeFailure::kProtocol);
    return false;
  }
  if (equal_in_constant_time(ours, std::span<const std::byte>(buffer_).subspan(4, kMacBytes))) {
    return true;
  }
  std::array<std::byte, kAcceptedBytes> message{};
  message[0] = static_cast<std::byte>(HandshakeFailure::kSecret);
  start_sending(State::kSendAccepted, message);
  static_cast<void>(send());
  fail(HandshakeFailure::kSecret);
  return false;
}

} // namespace whorl
