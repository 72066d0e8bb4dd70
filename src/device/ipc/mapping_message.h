#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "node/fd_channel.h"

namespace whorl {

/// Message about parts of a run of mappings, a descriptor of each of which goes with the message.
struct MappingMessage {
  std::uint32_t rank = 0;             ///< rank that the memory belongs to
  std::uint64_t operation = 0;        ///< number of the operation
  std::uint64_t run = 0;              ///< id of the run
  std::uint32_t first = 0;            ///< number of the first part in the run
  std::vector<std::uint64_t> sizes{}; ///< bytes of each part

  std::vector<std::byte> encode() const {
    ByteWriter out;
    out.put(Header{.rank = rank,
                   .operation = operation,
                   .run = run,
                   .first = first,
                   .parts = static_cast<std::uint32_t>(sizes.size())});
    for (const std::uint64_t size : sizes) out.put(size);
    return out.bytes();
  }
  /// Decodes the body of a message, which need not be trusted. Returns nothing if the body has no
  /// such header. Without sizes, the rest is malformed: a message has at least one part.
  static std::optional<MappingMessage> decode(std::span<const std::byte> body) {
    ByteReader in(body);
    const auto header = in.get<Header>();
    if (!in.ok() || header.magic != Header::kMagic) return {};
    MappingMessage message{.rank = header.rank,
                           .operation = header.operation,
                           .run = header.run,
                           .first = header.first};
    if (header.parts > FdChannel::kMaxFds || in.left() != header.parts * sizeof(std::uint64_t)) {
      return message;
    }
    for (std::uint32_t i = 0; i < header.parts; ++i) {
      message.sizes.push_back(in.get<std::uint64_t>());
    }
    return message;
  }

 private:
  /// Begin of a message. The bytes of each part follow.
  struct Header {
    static constexpr std::uint32_t kMagic = 0x4d4d5057; // "WPMM"
    std::uint32_t magic = kMagic;
    std::uint32_t rank = 0;
    std::uint64_t operation = 0;
    std::uint64_t run = 0;
    std::uint32_t first = 0, parts = 0;
  };
  static_assert(sizeof(Header) + FdChannel::kMaxFds * sizeof(std::uint64_t) <=
                FdChannel::kMaxBytes);
};

} // namespace whorl
