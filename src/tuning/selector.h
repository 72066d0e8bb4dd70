#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/cost_model.h"
#include "base/status.h"

namespace whorl {

/// Table of the algorithm that each collective uses at each size. Rank 0 makes it and all ranks use
/// it, so ranks cannot disagree. Plain bytes, sent as they are.
class Selector {
 public:
  /// Number of size classes. Class k: up to 2^k bytes; the last: all larger ones.
  static constexpr std::size_t kClasses = 48;

  /// Makes a table from the cost model and `overrides` in the syntax of WHORL_ALGO. The error names
  /// the wrong part of the text, or an algorithm that does not support the shape.
  static Result<Selector> make(const Shape& shape, const LinkCosts& links,
                               std::string_view overrides);
  /// Returns whether an algorithm of `collective` supports the shape.
  bool has(Collective collective) const noexcept {
    return table_[static_cast<std::size_t>(collective)].front() != kNone;
  }
  /// Checks that `collective` can be called: the error says that none of its algorithms supports
  /// the shape. Other collectives can still be called.
  Status check(Collective collective, int nranks) const;
  /// Returns the algorithm for an operation whose larger side has `bytes` bytes, of a collective
  /// that the table has().
  const Algorithm& pick(Collective collective, std::size_t bytes) const noexcept;
  /// Returns whether the entries of each collective are algorithms of it, or all none: for a table
  /// that came from another rank.
  bool valid() const noexcept;

 private:
  static constexpr std::uint8_t kNone = 255; ///< entry where no algorithm supports the shape

  std::array<std::array<std::uint8_t, kClasses>, kNumCollectives> table_{};
};

/// Checks the names in overrides, which needs no shape.
Status check_overrides(std::string_view text);
/// Returns the overrides that make() accepts for the shape.
std::string supported_overrides(const Shape& shape, std::string_view text);
/// Returns the algorithm for blocks of different sizes: one without scratch, whose chunks belong to
/// no block. The error says that none supports the shape.
Result<const Algorithm*> uneven_algorithm(Collective collective, const Shape& shape);
/// Reads "4:twoshot,2:ring" (innermost first); the algorithm may be left out.
Result<std::vector<Dimension>> parse_dims(std::string_view text);
/// Checks that the product of the sizes is the number of ranks, unless there are no sizes.
Status check_product(const std::vector<Dimension>& dims, int nranks);
/// Reads dimensions, and checks that their product is `nranks`.
Result<std::vector<Dimension>> parse_dims(std::string_view text, int nranks);
std::string format_dims(const std::vector<Dimension>& dims);

} // namespace whorl
