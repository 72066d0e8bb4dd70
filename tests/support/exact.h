#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace whorl::test {

/// Exact sum of multiples of finite float64 numbers, in fixed point: two's complement, a digit for
/// each power of 2^32 from 2^-1216 to 2^1216.
class Exact {
 public:
  /// Adds value·times·2^shift, where |times| is at most 2^40 and 0 ≤ shift ≤ 64.
  void add(double value, std::int64_t times = 1, int shift = 0) {
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);
    const auto mantissa = static_cast<std::int64_t>(std::ldexp(fraction, 53));
    const int position = exponent - 53 + shift + 32 * kOne;
    __int128 carry = static_cast<__int128>(mantissa) * times;
    carry *= std::int64_t{1} << (position % 32); // at most 2^53·2^40·2^31
    for (auto i = static_cast<std::size_t>(position / 32); carry != 0 && i < digits_.size(); ++i) {
      carry += digits_[i];
      digits_[i] = static_cast<std::uint32_t>(carry);
      carry >>= 32; // rounds down, so that −1 stays: two's complement
    }
  }
  /// Returns −1, 0 or 1.
  int sign() const {
    if (digits_.back() >> 31 != 0) return -1;
    for (const std::uint32_t digit : digits_) {
      if (digit != 0) return 1;
    }
    return 0;
  }

 private:
  static constexpr int kOne = 38; ///< index of the digit of 1
  std::array<std::uint32_t, 2 * kOne + 1> digits_{};
};

} // namespace whorl::test
