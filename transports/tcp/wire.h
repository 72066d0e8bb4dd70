#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "base/fingerprint.h"

namespace whorl::tcp {

/// Header of every message on a data socket; `bytes` of payload follow.
struct MessageHeader {
  static constexpr std::uint32_t kMagic = 0x6d726877; // "whrm"
  std::uint32_t magic = kMagic;
  std::uint32_t bytes = 0;
  Fingerprint fingerprint;
  std::uint64_t number = 0; ///< number of the message on this socket and direction, from 0
};
static_assert(sizeof(MessageHeader) == 32);

} // namespace whorl::tcp
