#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

namespace whorl::testing {

/// A floating format of at most 16 bits as its definition has it, not as a processor computes it.
/// Shares no code with src/kernels.
class WideFormat {
 public:
  WideFormat(int exponent_bits, int mantissa_bits, bool ieee);
  /// Float16, Bfloat16, Float8e4m3 or Float8e5m2.
  static const WideFormat& of(DataType type);

  double value(std::uint32_t code) const;
  /// The code nearest to `value`, found by search among all of them; ties to the even code.
  std::uint32_t nearest(double value) const;

  std::uint32_t sign_bit() const { return sign_bit_; }
  /// The largest finite magnitude.
  std::uint32_t largest() const { return static_cast<std::uint32_t>(magnitudes_.size()) - 1; }

 private:
  std::uint32_t sign_bit_;
  bool ieee_;
  std::uint32_t nan_;
  double too_large_;               ///< from here on infinity, in formats that have one
  std::vector<double> magnitudes_; ///< value of every finite code without sign
};

/// What a kernel has to write for one element of each source. Elements are their bits.
std::uint64_t expected_element(DataType type, ReduceOp op, std::span<const std::uint64_t> operands,
                               int divisor);

} // namespace whorl::testing
