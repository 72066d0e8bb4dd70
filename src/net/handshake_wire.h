#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "net/handshake.h"

/// Messages of handshakes, for both sides.
namespace whorl::handshake_wire {

// Magic numbers of the two sides, which differ so that a socket that TCP has connected to itself
// does not take its own hello for an answer.
inline constexpr std::uint32_t kHelloMagic = 0x68726877;     // "whrh"
inline constexpr std::uint32_t kChallengeMagic = 0x63726877; // "whrc"

// Layouts, little-endian:
//   hello      magic 4, version 2, role 2, job 16, from 4, to 4, channel 4, flags 4, nonce 32,
//              share 32
//   challenge  magic 4, version 2, failure 2, flags 4, nonce 32, share 32, mac 32
//   proof      failure 1, 000, mac 32
//   accepted   failure 1, 000

/// Flag of a side that encrypts; there is no other.
inline constexpr std::uint32_t kEncrypts = 1;

template <class T>
std::byte* put(std::byte* out, const T& value) noexcept {
  std::memcpy(out, &value, sizeof value);
  return out + sizeof value;
}

/// Returns the reason that the other side gives. kEncryption is none: each side sees that by
/// itself.
inline HandshakeFailure to_failure(std::uint8_t value) noexcept {
  return value <= static_cast<std::uint8_t>(HandshakeFailure::kUser)
             ? static_cast<HandshakeFailure>(value)
             : HandshakeFailure::kProtocol;
}

} // namespace whorl::handshake_wire
