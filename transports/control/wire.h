#pragma once

#include <cstddef>
#include <cstdint>

namespace whorl::control {

enum class FrameKind : std::uint16_t {
  kError = 1,     ///< the sender has failed; the text says why
  kGoodbye = 2,   ///< the sender leaves in good order; nothing follows
  kWord = 3,      ///< bytes of the transport, of which the text consists
  kBeat = 4,      ///< asks for nothing but the kernel's acknowledgement
  kStuck = 5,     ///< the StuckOperation that the text consists of
  kBeatsRead = 6, ///< Heartbeat::kReadTogether beats have been read
};

/// Header of a frame on a control socket; `text_bytes` of UTF-8 follow.
struct FrameHeader {
  static constexpr std::uint32_t kMagic = 0x76726877; // "whrv"
  static constexpr std::size_t kMaxTextBytes = 1024;
  std::uint32_t magic = kMagic;
  std::uint16_t kind = 0;
  std::uint16_t reserved = 0;
  std::uint32_t text_bytes = 0;
  std::uint32_t more_reserved = 0;

  /// Returns whether every field has a value that this version sends.
  bool sane() const noexcept {
    return magic == kMagic && kind >= 1 && kind <= 6 && text_bytes <= kMaxTextBytes;
  }
};
static_assert(sizeof(FrameHeader) == 16);

} // namespace whorl::control
