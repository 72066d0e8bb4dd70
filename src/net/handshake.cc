// The states of handshakes, and the connecting side.
#include "net/handshake.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/bytes.h"
#include "net/handshake_wire.h"
#include "net/secret.h"

namespace whorl {

using namespace handshake_wire;

Handshake Handshake::connecting(Fd socket, const Identity& identity, const ConnectionName& name,
                                bool encrypts) {
  Handshake h;
  h.socket_ = std::move(socket);
  h.identity_ = identity;
  h.name_ = name;
  h.connects_ = true;
  h.encrypts_ = encrypts;
  std::array<std::byte, kNonceBytes> nonce{};
  if (const int result = sys().random_bytes(nonce); result < 0) {
    h.fail(HandshakeFailure::kClosed, result);
    return h;
  }
  KeyExchange::Share share{};
  if (encrypts && !h.exchange_.make_share(&share)) {
    h.fail(HandshakeFailure::kProtocol);
    return h;
  }
  std::byte* out = h.hello_.data();
  out = put(out, kHelloMagic);
  out = put(out, kWireVersion);
  out = put(out, static_cast<std::uint16_t>(name.role));
  out = put(out, identity.job);
  out = put(out, name.from);
  out = put(out, name.to);
  out = put(out, name.channel);
  out = put(out, encrypts ? kEncrypts : 0);
  out = put(out, nonce);
  put(out, share);
  h.start_sending(State::kSendHello, h.hello_);
  return h;
}

short Handshake::events() const noexcept {
  switch (state_) {
    case State::kReadChallenge:
    case State::kReadAccepted:
    case State::kReadHello:
    case State::kReadProof:
      return POLLIN;
    case State::kSendHello:
    case State::kSendProof:
    case State::kSendChallenge:
    case State::kSendAccepted:
      return POLLOUT;
    default:
      return 0;
  }
}

void Handshake::start_sending(State state, std::span<const std::byte> message) noexcept {
  state_ = state;
  std::copy(message.begin(), message.end(), buffer_.begin());
  size_ = message.size();
  moved_ = 0;
}

void Handshake::start_reading(State state) noexcept {
  state_ = state;
  moved_ = 0;
  size_ = state == State::kReadHello       ? kHelloBytes
          : state == State::kReadChallenge ? kChallengeBytes
          : state == State::kReadProof     ? kProofBytes
                                           : kAcceptedBytes;
}

Progress Handshake::fail(HandshakeFailure failure, int error) noexcept {
  if (state_ != State::kFailed) {
    state_ = State::kFailed;
    failure_ = failure;
    error_ = error;
  }
  return Progress::kFailed;
}

Progress Handshake::send() noexcept {
  while (moved_ < size_) {
    const auto rest = std::span<const std::byte>(buffer_).subspan(moved_, size_ - moved_);
    const ssize_t sent = sys().send(socket_.get(), rest);
    // A socket that is still connecting says ENOTCONN or EAGAIN.
    if (sent == -EAGAIN || sent == -ENOTCONN) return Progress::kIdle;
    if (sent < 0) return fail(HandshakeFailure::kClosed, static_cast<int>(sent));
    moved_ += static_cast<std::size_t>(sent);
  }
  return Progress::kDone;
}

Progress Handshake::receive(std::size_t size) noexcept {
  while (moved_ < size) {
    // Reads never go past the end of this message: bytes behind it belong to the socket's owner.
    const auto rest = std::span(buffer_).subspan(moved_, size - moved_);
    const ssize_t got = sys().recv(socket_.get(), rest);
    if (got == -EAGAIN) return Progress::kIdle;
    if (got <= 0) return fail(HandshakeFailure::kClosed, static_cast<int>(got));
    moved_ += static_cast<std::size_t>(got);
    // Garbage is recognised by its first bytes, without waiting for the rest of the message.
    const bool has_magic = state_ == State::kReadHello || state_ == State::kReadChallenge;
    const std::uint32_t magic = state_ == State::kReadHello ? kHelloMagic : kChallengeMagic;
    if (has_magic && std::memcmp(buffer_.data(), &magic, std::min(moved_, sizeof magic)) != 0) {
      return fail(HandshakeFailure::kProtocol);
    }
  }
  return Progress::kDone;
}

Progress Handshake::step() noexcept {
  for (;;) {
    switch (state_) {
      case State::kNone:
      case State::kFailed:
        return Progress::kFailed;
      case State::kDone:
        return Progress::kDone;
      case State::kDecide:
        return Progress::kIdle;
      default:
        break;
    }
    if (sys().now_ns() > deadline_ns_) return fail(HandshakeFailure::kSlow);
    const Progress moved = events() == POLLOUT ? send() : receive(size_);
    if (moved != Progress::kDone) return moved;
    const Progress decided = next();
    if (decided != Progress::kAdvanced) return decided;
    if (state_ == State::kDecide) return Progress::kAdvanced;
  }
}

/// Enters the next state after a whole message has been moved. kAdvanced: the handshake continues.
Progress Handshake::next() noexcept {
  switch (state_) {
    case State::kSendHello:
      start_reading(State::kReadChallenge);
      return Progress::kAdvanced;
    case State::kReadChallenge: {
      if (!check_challenge()) return Progress::kFailed;
      Digest proof{};
      if (!mac("whorl connect", &proof)) return fail(HandshakeFailure::kProtocol);
      std::array<std::byte, kProofBytes> message{};
      std::memcpy(message.data() + 4, proof.data(), proof.size());
      start_sending(State::kSendProof, message);
      return Progress::kAdvanced;
    }
    case State::kSendProof:
      // The other side finds the same, by this proof.
      if (encrypts_ != peer_encrypts_) return fail(HandshakeFailure::kEncryption);
      start_reading(State::kReadAccepted);
      return Progress::kAdvanced;
    case State::kReadAccepted:
      if (const auto failure = to_failure(static_cast<std::uint8_t>(buffer_[0]));
          failure != HandshakeFailure::kNone) {
        told_by_peer_ = true;
        return fail(failure);
      }
      if (!agree_on_encryption()) return Progress::kFailed;
      state_ = State::kDone;
      return Progress::kDone;
    case State::kReadHello:
      check_hello();
      return state_ == State::kFailed ? Progress::kFailed : Progress::kAdvanced;
    case State::kSendChallenge:
      start_reading(State::kReadProof);
      return Progress::kAdvanced;
    case State::kReadProof:
      if (!check_proof() || !agree_on_encryption()) return Progress::kFailed;
      start_sending(State::kSendAccepted, std::array<std::byte, kAcceptedBytes>{});
      return Progress::kAdvanced;
    case State::kSendAccepted:
      state_ = State::kDone;
      return Progress::kDone;
    default:
      return Progress::kFailed;
  }
}

bool Handshake::check_challenge() noexcept {
  ByteReader in(std::span<const std::byte>(buffer_).first(kChallengeBytes));
  in.get<std::uint32_t>();
  peer_version_ = in.get<std::uint16_t>();
  const auto failure = in.get<std::uint16_t>();
  answer_ = in.get<std::array<std::byte, kAnswerBytes>>();
  const auto theirs = in.get<Digest>();
  if (peer_version_ != kWireVersion) {
    fail(HandshakeFailure::kVersion);
    return false;
  }
  if (failure != 0) {
    told_by_peer_ = true;
    fail(failure <= UINT8_MAX ? to_failure(static_cast<std::uint8_t>(failure))
                              : HandshakeFailure::kProtocol);
    return false;
  }
  Digest ours{};
  if (!mac("whorl accept", &ours)) {
    fail(HandshakeFailure::kProtocol);
    return false;
  }
  if (!equal_in_constant_time(ours, theirs)) {
    // Sends the reason before hanging up, so that both sides can name it.
    std::array<std::byte, kProofBytes> message{};
    message[0] = static_cast<std::byte>(HandshakeFailure::kSecret);
    start_sending(State::kSendProof, message);
    static_cast<void>(send());
    fail(HandshakeFailure::kSecret);
    return false;
  }
  ByteReader answer(answer_);
  peer_encrypts_ = answer.get<std::uint32_t>() == kEncrypts;
  answer.get_bytes(kNonceBytes);
  peer_share_ = answer.get<KeyExchange::Share>();
  return true;
}

/// Makes the encrypted stream if both sides want one; fails if only one does. Both have proved who
/// they are.
bool Handshake::agree_on_encryption() noexcept {
  if (encrypts_ != peer_encrypts_) {
    fail(HandshakeFailure::kEncryption);
    return false;
  }
  if (!encrypts_) return true;
  StreamKeys keys;
  if (!exchange_.derive(peer_share_, identity_.secret, {hello_, answer_}, connects_, &keys)) {
    fail(HandshakeFailure::kProtocol); // no share of whorl, or OpenSSL fails
    return false;
  }
  const Status made = without_exceptions([&] {
    sealed_ = std::make_unique<SealedStream>(keys);
    return Status();
  });
  if (!made.ok()) {
    fail(HandshakeFailure::kClosed, -ENOMEM);
  } else if (!sealed_->good()) {
    fail(HandshakeFailure::kProtocol);
  }
  return state_ != State::kFailed;
}

bool Handshake::mac(std::string_view label, std::array<std::byte, kMacBytes>* out) const noexcept {
  return hmac_sha256(identity_.secret, label, {hello_, answer_}, out);
}

} // namespace whorl
