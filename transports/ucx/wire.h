#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/fingerprint.h"

namespace whorl::ucx {

/// Kinds of active messages, as their ids.
enum AmId : unsigned {
  kData = 0,   ///< message of an endpoint; the payload follows
  kCredit = 1, ///< count of messages that the sender of the credit has released; no payload
  kHello = 2,  ///< sign of life of a connection; the payload means nothing
};

/// Header of every active message. What comes without the right token is dropped: UCX accepts
/// connections of strangers.
struct Header {
  std::uint64_t token = 0; ///< secret that the receiver has given to the sender
  std::uint32_t from = 0;  ///< rank of the sender
  std::uint32_t channel = 0;
  std::uint64_t number = 0;   ///< number of the message, from 0
  std::uint64_t released = 0; ///< number of messages that the sender has released
  /// Number of released messages of which the receiver is to tell the sender; 0: none.
  std::uint64_t wanted = 0;
  Fingerprint fingerprint;
};
static_assert(sizeof(Header) == 56);

/// Beginning of what ranks send each other over the control socket; a worker's address follows.
struct Introduction {
  static constexpr std::uint64_t kMagic = 0x31786375'6c726877; // "whrlucx1"
  std::uint64_t magic = kMagic;
  std::uint64_t token = 0; ///< token for messages to the rank that sends this
};

/// Token and address with which a rank has introduced itself.
struct Introduced {
  std::uint64_t token = 0;
  std::span<const std::byte> address; ///< address of the worker, for UCX; not empty
};

/// Reads an Introduction and the address behind it. The bytes need not be trusted.
inline std::optional<Introduced> read_introduction(std::span<const std::byte> bytes) noexcept {
  ByteReader in(bytes);
  const auto introduction = in.get<Introduction>();
  if (!in.ok() || in.left() == 0 || introduction.magic != Introduction::kMagic) return {};
  return Introduced{.token = introduction.token, .address = in.get_bytes(in.left())};
}

} // namespace whorl::ucx
