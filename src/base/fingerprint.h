#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/types.h"

namespace whorl {

/// Description of an operation, carried by each of its messages. Each receiver compares the
/// message's fingerprint with that of its own operation before it touches user memory, so that
/// agreement costs no extra message; a rank that only sends learns of a mismatch later. Plan,
/// communicator and sizes of blocks are hashed; the other fields are exact, so that the rank that
/// finds a mismatch can describe it.
struct Fingerprint {
  std::uint32_t sequence = 0;   ///< number of the operation in the communicator; for send and recv,
                                ///< number of the transfer between the two ranks
  std::uint8_t collective = 0;  ///< Collective, plus kUneven; both halves of a transfer have kSend
  std::uint8_t types = 0;       ///< DataType, plus 16·ReduceOp where the collective reduces
  std::uint16_t root = 0;       ///< root of the operation; 0 if it has none
  std::uint64_t count_plan = 0; ///< count (48 bits), then 16 bits of hash of communicator and plan

  /// Flag in `collective`: blocks have different sizes, `count` is that of the message's block.
  static constexpr std::uint8_t kUneven = 16;
  static constexpr std::uint64_t kMaxCount = (std::uint64_t{1} << 48) - 1;

  constexpr std::uint64_t count() const noexcept { return count_plan & kMaxCount; }
  constexpr std::uint16_t plan() const noexcept {
    return static_cast<std::uint16_t>(count_plan >> 48);
  }
  constexpr Collective kind() const noexcept {
    return static_cast<Collective>(collective & ~kUneven);
  }
  constexpr bool uneven() const noexcept { return (collective & kUneven) != 0; }
  constexpr DataType data_type() const noexcept { return static_cast<DataType>(types & 15U); }
  constexpr ReduceOp reduce_op() const noexcept { return static_cast<ReduceOp>(types >> 4U); }

  /// Returns this fingerprint with another number. Builds it in one vector register, because it is
  /// stored and soon copied as a whole: a load waits until narrower stores to the same place have
  /// left the store buffer.
  Fingerprint numbered(std::uint32_t number) const noexcept {
    using Whole [[gnu::vector_size(16)]] = std::uint32_t;
    auto whole = std::bit_cast<Whole>(*this);
    whole[0] = number;
    return std::bit_cast<Fingerprint>(whole);
  }

  /// Returns this fingerprint with another count.
  constexpr Fingerprint counting(std::uint64_t elements) const noexcept {
    Fingerprint other = *this;
    other.count_plan = (count_plan & ~kMaxCount) | (elements & kMaxCount);
    return other;
  }

  friend constexpr bool operator==(const Fingerprint&, const Fingerprint&) = default;
};
static_assert(kNumCollectives <= Fingerprint::kUneven);
static_assert(sizeof(Fingerprint) == 16 && offsetof(Fingerprint, sequence) == 0);

/// Returns whether all fields of a fingerprint, which may come from anywhere, have values of this
/// version.
bool known(const Fingerprint& fingerprint) noexcept;
/// Describes the operation of a message, with the number: "allreduce number 7 of …".
std::string describe(const Fingerprint& fingerprint);
/// Describes the arguments of an operation, as the end of its description: " of 8 int64 from root
/// 2".
std::string describe_arguments(Collective collective, std::uint64_t count, DataType type,
                               ReduceOp op, int peer);
/// Returns names and values of the fields in which the two differ: "datatype (float32 here, int32
/// there)".
std::string difference(const Fingerprint& here, const Fingerprint& there);

} // namespace whorl
