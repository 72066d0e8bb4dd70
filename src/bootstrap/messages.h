#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace whorl {

/// Messages between ranks and root, after the handshake (role kBootstrap, to kRootRank).
namespace bootstrap {

inline constexpr std::uint32_t kRootRank = UINT32_MAX;
inline constexpr std::size_t kMaxContributionBytes = 65536;
inline constexpr std::uint32_t kMaxRanks = 65536;
inline constexpr std::uint32_t kMaxTextBytes = 4096; ///< limit of the text of an error
/// Limit of the bytes of one all-gather: size of a contribution × ranks.
inline constexpr std::uint64_t kMaxTotalBytes = std::uint64_t{1} << 30;

/// Kind of what a rank sends.
enum class ContributionKind : std::uint32_t {
  kData = 0,    ///< contribution to an all-gather
  kLeaving = 1, ///< last message of a rank that is ready: its hang-up is no death
  /// Reason why this rank does not go on, as text; ends the rendezvous for all ranks. `rank` and
  /// `nranks` may be what is wrong.
  kFailed = 2,
};

/// Header of a rank's contribution to an all-gather, or of one of its other messages; `bytes`
/// follow.
struct Contribution {
  static constexpr std::uint32_t kMagic = 0x62726877; // "whrb"
  std::uint32_t magic = kMagic;
  std::uint32_t rank = 0;
  std::uint32_t nranks = 0;
  std::uint32_t round = 0; ///< number of the all-gather, from 0
  std::uint32_t bytes = 0;
  std::uint32_t timeout_ms = 0; ///< time that this rank is going to wait
  ContributionKind kind = ContributionKind::kData;
  std::uint32_t code = 0;     ///< Code of a kFailed
  std::array<char, 64> who{}; ///< "host node7, pid 42", zero-terminated

  /// Returns whether every field has a value that a rank sends.
  bool sane() const noexcept;
};
static_assert(sizeof(Contribution) == 96);

/// Header of the root's answer: all contributions in rank order, or an error text; `bytes` follow.
struct Answer {
  static constexpr std::uint32_t kMagic = 0x61726877; // "whra"
  std::uint32_t magic = kMagic;
  std::uint32_t code = 0; ///< Code; 0 for a result
  std::uint32_t round = 0;
  std::uint32_t reserved = 0;
  std::uint64_t bytes = 0;
  std::array<std::byte, 16> salt{}; ///< random bytes, the same in every answer of one root

  /// Returns whether this is an error that a root sends, or the result of the all-gather `number`
  /// with `size` bytes.
  bool sane(std::uint32_t number, std::size_t size) const noexcept;
};
static_assert(sizeof(Answer) == 40);

} // namespace bootstrap
} // namespace whorl
