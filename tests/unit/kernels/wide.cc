#include "wide.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace whorl::test {
namespace {

#if defined(__x86_64__)
using Quad = __float128;
#else
using Quad = long double;
#endif
static_assert(sizeof(Quad) == 16);

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool is_signed(DataType type) {
  return type == DataType::kInt8 || type == DataType::kInt16 || type == DataType::kInt32 ||
         type == DataType::kInt64;
}

/// Returns the number that the low bits represent.
__int128 to_number(std::uint64_t bits, int width, bool with_sign) {
  const __int128 modulus = static_cast<__int128>(1) << width;
  __int128 number = static_cast<__int128>(bits) % modulus;
  if (with_sign && number >= modulus / 2) number -= modulus;
  return number;
}

std::uint64_t expected_integer(DataType type, ReduceOp op, std::span<const std::uint64_t> operands,
                               int divisor) {
  const int width = static_cast<int>(size_of(type)) * 8;
  __int128 result = to_number(operands[0], width, is_signed(type));
  for (const std::uint64_t operand : operands.subspan(1)) {
    const __int128 number = to_number(operand, width, is_signed(type));
    switch (op) {
      case ReduceOp::kMax:
        result = std::max(result, number);
        break;
      case ReduceOp::kMin:
        result = std::min(result, number);
        break;
      case ReduceOp::kProd: // both below 2^64 in magnitude, so that the product does not wrap
        result = static_cast<__int128>(static_cast<unsigned __int128>(result) *
                                       static_cast<unsigned __int128>(number));
        break;
      case ReduceOp::kBand:
        result &= number;
        break;
      case ReduceOp::kBor:
        result |= number;
        break;
      case ReduceOp::kBxor:
        result ^= number;
        break;
      default:
        result += number;
    }
    result = to_number(static_cast<std::uint64_t>(result), width, is_signed(type));
  }
  if (op == ReduceOp::kAvg || op == ReduceOp::kSum) result /= divisor;
  const std::uint64_t bits = static_cast<std::uint64_t>(result);
  return width == 64 ? bits : bits & ((std::uint64_t{1} << width) - 1);
}

bool expected_truth(ReduceOp op, std::span<const std::uint64_t> operands) {
  const auto is_true = [](std::uint64_t operand) { return operand != 0; };
  switch (op) {
    case ReduceOp::kProd:
    case ReduceOp::kMin:
    case ReduceOp::kBand:
      return std::all_of(operands.begin(), operands.end(), is_true);
    case ReduceOp::kBxor:
      return std::count_if(operands.begin(), operands.end(), is_true) % 2 == 1;
    default:
      return std::any_of(operands.begin(), operands.end(), is_true);
  }
}

/// Returns the min or max of two operands: NaN if either is NaN; else by value; of two zeros the
/// negative one is the smaller.
template <class T>
T extreme(ReduceOp op, T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  const bool a_less = a < b || (a == b && std::signbit(a) && !std::signbit(b));
  return (op == ReduceOp::kMin) == a_less ? a : b;
}

/// Reduces operation by operation in `Wider`, rounding to T after each. With more than twice the
/// digits the second rounding changes nothing.
template <class T, class Wider>
T reduce_values(ReduceOp op, std::span<const T> unscaled, int divisor, bool scales) {
  // Operands of an average have no wider range than its result: they are scaled by a power of two.
  Wider scale = 1;
  while ((op == ReduceOp::kAvg || op == ReduceOp::kSum) && scales && scale * divisor > 1) {
    scale /= 2;
  }
  std::vector<T> operands;
  for (const T operand : unscaled) {
    operands.push_back(static_cast<T>(static_cast<Wider>(operand) * scale));
  }
  T result = operands[0];
  for (const T operand : std::span<const T>(operands).subspan(1)) {
    if (op == ReduceOp::kMax || op == ReduceOp::kMin) {
      result = extreme(op, result, operand);
    } else if (op == ReduceOp::kProd) {
      result = static_cast<T>(static_cast<Wider>(result) * static_cast<Wider>(operand));
    } else {
      result = static_cast<T>(static_cast<Wider>(result) + static_cast<Wider>(operand));
    }
  }
  if (op == ReduceOp::kAvg || op == ReduceOp::kSum) {
    result = static_cast<T>(static_cast<Wider>(result) / (static_cast<Wider>(divisor) * scale));
  }
  return std::isnan(result) ? std::numeric_limits<T>::quiet_NaN() : result;
}

} // namespace

WideFormat::WideFormat(int exponent_bits, int mantissa_bits, bool ieee)
    : sign_bit_(1u << (exponent_bits + mantissa_bits)), ieee_(ieee) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int steps = 1 << mantissa_bits;
  const int top = (1 << exponent_bits) - 1;
  for (int exponent = 0; exponent <= (ieee ? top - 1 : top); ++exponent) {
    for (int mantissa = 0; mantissa < steps; ++mantissa) {
      const double significand = (exponent == 0 ? 0.0 : 1.0) + double(mantissa) / steps;
      magnitudes_.push_back(std::ldexp(significand, std::max(exponent, 1) - bias));
    }
  }
  if (!ieee) magnitudes_.pop_back();
  nan_ = ieee ? sign_bit_ - static_cast<std::uint32_t>(steps / 2) : sign_bit_ - 1;
  too_large_ = magnitudes_.back() + std::ldexp(0.5 / steps, top - 1 - bias);
}

const WideFormat& WideFormat::of(DataType type) {
  static const WideFormat half(5, 10, true), bfloat(8, 7, true), e4m3(4, 3, false),
      e5m2(5, 2, true);
  switch (type) {
    case DataType::kFloat16:
      return half;
    case DataType::kBfloat16:
      return bfloat;
    case DataType::kFloat8e4m3:
      return e4m3;
    default:
      return e5m2;
  }
}

double WideFormat::value(std::uint32_t code) const {
  const std::uint32_t magnitude = code & (sign_bit_ - 1);
  double value = kNan;
  if (magnitude <= largest()) {
    value = magnitudes_[magnitude];
  } else if (ieee_ && magnitude == largest() + 1) {
    value = std::numeric_limits<double>::infinity();
  }
  return (code & sign_bit_) != 0 ? -value : value;
}

std::uint32_t WideFormat::nearest(double value) const {
  if (std::isnan(value)) return nan_;
  const std::uint32_t sign = std::signbit(value) ? sign_bit_ : 0;
  const double wanted = std::fabs(value);
  if (ieee_ && wanted >= too_large_) return sign | (largest() + 1);
  const auto above = std::lower_bound(magnitudes_.begin(), magnitudes_.end(), wanted);
  if (above == magnitudes_.end()) return sign | largest();
  std::uint32_t code = static_cast<std::uint32_t>(above - magnitudes_.begin());
  if (*above != wanted) {
    const double middle = (magnitudes_[code - 1] + magnitudes_[code]) / 2;
    if (wanted < middle || (wanted == middle && code % 2 == 1)) --code;
  }
  return sign | code;
}

std::uint64_t expected_element(DataType type, ReduceOp op, std::span<const std::uint64_t> operands,
                               int divisor) {
  switch (type) {
    case DataType::kFloat32: {
      std::vector<float> values;
      for (const std::uint64_t bits : operands) {
        values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
      }
      return std::bit_cast<std::uint32_t>(reduce_values<float, double>(op, values, divisor, true));
    }
    case DataType::kFloat64: {
      std::vector<double> values;
      for (const std::uint64_t bits : operands) values.push_back(std::bit_cast<double>(bits));
      return std::bit_cast<std::uint64_t>(reduce_values<double, Quad>(op, values, divisor, true));
    }
    case DataType::kFloat16:
    case DataType::kBfloat16:
    case DataType::kFloat8e4m3:
    case DataType::kFloat8e5m2: {
      const WideFormat& format = WideFormat::of(type);
      std::vector<float> values;
      for (const std::uint64_t bits : operands) {
        values.push_back(static_cast<float>(format.value(static_cast<std::uint32_t>(bits))));
      }
      const float result =
          reduce_values<float, double>(op, values, divisor, type == DataType::kBfloat16);
      // An average that rounding would carry beyond the range is clamped to its end.
      const auto largest = static_cast<float>(format.value(format.largest()));
      const bool divided =
          divisor > 1 && std::isfinite(result) && (op == ReduceOp::kAvg || op == ReduceOp::kSum);
      return format.nearest(divided ? std::clamp(result, -largest, largest) : result);
    }
    case DataType::kBool:
      return expected_truth(op, operands) ? 1 : 0;
    default:
      return expected_integer(type, op, operands, divisor);
  }
}

} // namespace whorl::test
