#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "perf/common/types.h"

namespace perf {

/// Number of elements after which inputs repeat. Prime, so that no chunk that a library could
/// misplace is a multiple of it; small, so that comparing against a tile hardly disturbs the
/// caches.
inline constexpr std::size_t kPeriod = 4093;

/// Bytes of kPeriod elements as they lie in memory.
using Tile = std::vector<std::byte>;

/// Data of one measurement: each rank's input and the required results, bit for bit.
///
/// Element i of rank r's input is element (i + shift) mod kPeriod of r's tile; the element-wise
/// reduction of all inputs is a tile, too. Values are chosen so that every order of combination is
/// exact, even if each partial result is rounded to the element type: small integers for sums (all
/// partial sums fit the significand), signed powers of two for products (few ranks differ from ±1,
/// so that no partial product leaves the range), any integer for max and min. For an average over n
/// ranks where n is not a power of two, sums are multiples of n. Integer types take arbitrary
/// values and wrap. Without an operator (kNone), inputs are arbitrary bits, which copies must
/// preserve.
class Pattern {
 public:
  Pattern(DataType type, Operator op, int nranks);

  [[nodiscard]] const Tile& input(int rank) const;
  [[nodiscard]] const Tile& reduced() const { return reduced_; }
  [[nodiscard]] std::size_t element_bytes() const { return info_.bytes; }

 private:
  [[nodiscard]] std::uint64_t truth(int rank, std::size_t index) const;
  [[nodiscard]] std::uint64_t reduced_truth(std::size_t index) const;
  [[nodiscard]] std::uint64_t integer(int rank, std::size_t index) const;
  [[nodiscard]] double real(int rank, std::size_t index) const;
  [[nodiscard]] Tile make_input(int rank) const;
  [[nodiscard]] Tile make_reduced() const;

  TypeInfo info_;
  Operator op_;
  int nranks_;
  Tile reduced_;
  mutable std::map<int, Tile> inputs_; ///< tiles by rank, made on demand
};

/// Scalar with which kMulSum multiplies every input.
inline constexpr int kMulSumScalar = 2;

/// Returns the bits of `value`, which must be representable in `type`, as an element of `type`.
std::uint64_t encode(const TypeInfo& type, double value);

/// Writes `count` elements of the tile, beginning at tile position `start` (any number).
void fill(void* data, std::size_t count, const Tile& tile, std::size_t element_bytes,
          std::size_t start);

/// Counts the elements among `count` that differ in any bit from the tile, beginning at position
/// `start`.
std::size_t count_wrong(const void* data, std::size_t count, const Tile& tile,
                        std::size_t element_bytes, std::size_t start);

} // namespace perf
