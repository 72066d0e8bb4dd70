#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "perf/common/types.h"

namespace perf {

/// Inputs repeat after this many elements. Prime, so that no chunk that a library could misplace
/// is a multiple of it; and small enough that comparing against it hardly disturbs the caches.
inline constexpr std::size_t kPeriod = 4093;

/// kPeriod elements as they lie in memory.
using Tile = std::vector<std::byte>;

/// The data of one measurement: what each rank puts in and what has to come out, bit for bit.
///
/// Element i of rank r's input is element (i + shift) mod kPeriod of r's tile; the element-wise
/// reduction of all inputs is a tile too. Values are chosen so that every order of combination,
/// also one that rounds each partial result to the element type, is exact:
/// small integers for sums (all partial sums fit the significand), signed powers of two for
/// products (few ranks differ from ±1, so that no partial product leaves the range), any integer
/// for max and min. For an average over n ranks where n is not a power of two, sums are multiples
/// of n. Integer types take arbitrary values and wrap. Without an operator (kNone), inputs are
/// arbitrary bits: copies must keep them.
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
  mutable std::map<int, Tile> inputs_; ///< made when asked for
};

/// The scalar with which kMulSum multiplies every input.
inline constexpr int kMulSumScalar = 2;

/// The bits of `value` in `type`. `value` is representable in it.
std::uint64_t encode(const TypeInfo& type, double value);

/// Writes `count` elements of the tile from position `start` (any number) on.
void fill(void* data, std::size_t count, const Tile& tile, std::size_t element_bytes,
          std::size_t start);

/// How many of `count` elements differ in any bit from the tile from position `start` on.
std::size_t count_wrong(const void* data, std::size_t count, const Tile& tile,
                        std::size_t element_bytes, std::size_t start);

} // namespace perf
