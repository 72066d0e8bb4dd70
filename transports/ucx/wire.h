#pragma once

#include <cstddef>
#include <cstdint>

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

} // namespace whorl::ucx
