#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

namespace whorl::test {

/// Floating format of at most 16 bits, computed from its definition and not by the processor.
/// Shares no code with src/kernels.
class WideFormat {
 public:
  WideFormat(int exponent_bits, int mantissa_bits, bool ieee);
  /// Returns Float16, Bfloat16, Float8e4m3 or Float8e5m2.
  static const WideFormat& of(DataType type);

  double value(std::uint32_t code) const;
  /// Returns the code nearest to `value`, found by search among all codes; ties go to the even
  /// code.
  std::uint32_t nearest(double value) const;

  std::uint32_t sign_bit() const { return sign_bit_; }
  /// Returns the code of the largest finite magnitude.
  std::uint32_t largest() const { return static_cast<std::uint32_t>(magnitudes_.size()) - 1; }

 private:
  std::uint32_t sign_bit_;
  bool ieee_;
  std::uint32_t nan_;
  double too_large_;               ///< first magnitude that is infinity, in formats that have it
  std::vector<double> magnitudes_; ///< value of every finite code without sign
};

/// Returns the result that a kernel must write for one element of each source. Elements are bit
/// patterns.
std::uint64_t expected_element(DataType type, ReduceOp op, std::span<const std::uint64_t> operands,
                               int divisor);

} // namespace whorl::test
