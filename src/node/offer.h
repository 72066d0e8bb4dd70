#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace whorl {

/// Bodies of the messages by which the ranks of a host meet (see meet()). The descriptors that a
/// body describes travel beside it, in the same order.

enum class FdKind : std::uint32_t { kHeap = 1, kPidfd = 2, kOutbox = 3 };

/// Body of a rank's message to the lowest rank, beside which travels the descriptor of its heap, if
/// it has one.
struct NodeHello {
  bool heap = false; ///< whether there is a descriptor

  std::vector<std::byte> encode() const;
  /// Decodes what encode() returned on a rank that sent `fds` descriptors with it. The bytes need
  /// not be trusted.
  static std::optional<NodeHello> decode(std::span<const std::byte> body, std::size_t fds);
};

/// Body of the lowest rank's answer: why it has failed, or descriptors.
struct NodeOffer {
  struct Entry {
    FdKind kind = FdKind::kHeap;
    int rank = 0; ///< rank that the descriptor belongs to
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  bool failed = false;
  std::string reason;         ///< printable sentence if `failed`
  std::vector<Entry> entries; ///< descriptors after the first one, which is the segment's

  static NodeOffer failure(std::string_view reason);
  std::vector<std::byte> encode() const;
  /// Decodes what encode() returned on a rank that sent `fds` descriptors with it, for ranks among
  /// `members`, which are ascending. The bytes need not be trusted.
  static std::optional<NodeOffer> decode(std::span<const std::byte> body, std::size_t fds,
                                         std::span<const int> members);
};

} // namespace whorl
