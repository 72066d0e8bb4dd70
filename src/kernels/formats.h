#pragma once

// Formats: types and conversions of a buffer's elements in kernels. A format has
//   Storage                 the type in memory
//   Value                   the type that is combined
//   load(Storage) -> Value, store(Value) -> Storage
//   divide(Value, divisor, scaled)  where averages exist; see Averaging
//   kScalesOperands         where averages exist: whether inputs are multiplied by
//                           inverse_power<Value>(k) before they are summed to an average
//   kLanes                  0, or number of elements that load_lanes(address) and
//                           store_lanes(address, values) convert at once; see lanes.h
// Everything is in an unnamed namespace and inlined, because each instruction set compiles its own.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/convert.h"
#include "kernels/lanes.h"

namespace whorl::kernels {
namespace {

/// Returns the least k with 2^k ≥ n, for n from 1 on.
WHORL_HOST_DEVICE constexpr int ceil_log2(int n) {
  int k = 0;
  while (k < 30 && (1 << k) < n) ++k;
  return k + (n > (1 << 30) ? 1 : 0);
}

/// Returns 2^-k for k from 0 to 126.
template <class T>
WHORL_HOST_DEVICE constexpr T inverse_power(int k) {
  if constexpr (sizeof(T) == 4) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(127 - k) << 23);
  } else {
    return __builtin_bit_cast(double, static_cast<std::uint64_t>(1023 - k) << 52);
  }
}

/// Format of values without conversion: integers under min, max and bitwise operators, and partial
/// results.
template <class T>
struct Plain {
  using Storage = T;
  using Value = T;
  static constexpr std::size_t kLanes = std::is_same_v<T, float> ? kFloatLanes : 0;
  WHORL_HOST_DEVICE static T load(T value) { return value; }
  WHORL_HOST_DEVICE static T store(T value) { return value; }
  WHORL_HOST_DEVICE static FloatLanes load_lanes(const void* from) {
    FloatLanes lanes;
    __builtin_memcpy(&lanes, from, sizeof lanes);
    return lanes;
  }
  WHORL_HOST_DEVICE static void store_lanes(void* to, FloatLanes lanes) {
    __builtin_memcpy(to, &lanes, sizeof lanes);
  }
};

/// Format of integers under sum and product, which wrap; unsigned arithmetic does so by definition.
template <class T>
struct Wrapping {
  using Storage = T;
  using Value = std::make_unsigned_t<T>;
  static constexpr std::size_t kLanes = 0;
  static constexpr bool kScalesOperands = false;
  WHORL_HOST_DEVICE static Value load(T value) { return static_cast<Value>(value); }
  WHORL_HOST_DEVICE static T store(Value value) { return static_cast<T>(value); }
  /// Divides, rounding towards zero. Processors have no vector division of integers, but the
  /// quotient of two integers of w bits in a floating type of 2w bits of precision never rounds up
  /// to the next integer.
  WHORL_HOST_DEVICE static Value divide(Value value, int divisor, int /*scaled*/) {
    if constexpr (sizeof(T) == 8) {
      return static_cast<Value>(static_cast<T>(value) / static_cast<T>(divisor));
    } else {
      using Wide = std::conditional_t<sizeof(T) == 1, float, double>;
      return static_cast<Value>(
          static_cast<T>(static_cast<Wide>(static_cast<T>(value)) / static_cast<Wide>(divisor)));
    }
  }
};

/// Format of truth values: any byte but 0 is true. Truth values are combined as 0 and 1, whose
/// maximum is "or" and whose minimum is "and".
struct Truth {
  using Storage = std::uint8_t;
  using Value = std::uint8_t;
  static constexpr std::size_t kLanes = 0;
  WHORL_HOST_DEVICE static Value load(Storage value) { return value != 0 ? 1 : 0; }
  WHORL_HOST_DEVICE static Storage store(Value value) { return value; }
};

/// Format of float and double. Payload and sign of a NaN depend on the processor and on the order
/// of the operands, which compilers swap; one NaN for all makes the bits the same everywhere. There
/// is no wider type to sum in, so the operands of an average are scaled.
template <class T>
struct Real {
  using Storage = T;
  using Value = T;
  static constexpr std::size_t kLanes = 0;
  static constexpr bool kScalesOperands = true;
  WHORL_HOST_DEVICE static T load(T value) { return value; }
  WHORL_HOST_DEVICE static T store(T value) {
    return value != value ? (sizeof(T) == 4 ? T(__builtin_nanf("")) : T(__builtin_nan(""))) : value;
  }
  WHORL_HOST_DEVICE static T divide(T value, int divisor, int scaled) {
    return value / (static_cast<T>(divisor) * inverse_power<T>(scaled));
  }
};

/// Format of a SmallFloat, combined in float32. float32 has room for the sum of any inputs unless
/// the type's exponents are as large.
template <class Float>
struct Widened : Lanes<Float> {
  using Storage = typename Float::Bits;
  using Value = float;
  static constexpr bool kScalesOperands = Float::kBias == 127;
  WHORL_HOST_DEVICE static float load(Storage bits) { return Float::decode(bits); }
  WHORL_HOST_DEVICE static Storage store(float value) { return Float::encode(value); }
  /// Divides. An average of finite numbers is at most the largest of them, so a result that
  /// rounding has carried beyond the largest finite number becomes that number.
  WHORL_HOST_DEVICE static float divide(float value, int divisor, int scaled) {
    constexpr std::uint32_t kInfinity = 0x7f800000u;
    const float quotient = value / (static_cast<float>(divisor) * inverse_power<float>(scaled));
    const auto bits = __builtin_bit_cast(std::uint32_t, quotient);
    const std::uint32_t magnitude = bits & ~0x80000000u;
    const bool too_large = (magnitude > Float::kLargest) & (magnitude < kInfinity);
    return __builtin_bit_cast(float,
                              select(too_large, Float::kLargest | (bits & 0x80000000u), bits));
  }
};

/// Constants of SmallFloat that Ordered needs, for float and double.
template <class BitsType, BitsType kInfinity, int kMantissaBits>
struct WideFloat {
  using Bits = BitsType;
  static constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  static constexpr Bits kFirstNan = kInfinity + 1;
  static constexpr Bits kNan = kInfinity | (Bits{1} << (kMantissaBits - 1));
};
using Float32 = WideFloat<std::uint32_t, 0x7f800000u, 23>;
using Float64 = WideFloat<std::uint64_t, 0x7ff0000000000000u, 52>;

/// Format of any floating type under min and max: signed integers in the same order, so that
/// nothing is converted and -0 is below +0. Negative numbers have their magnitude bits flipped,
/// which is its own inverse. The extreme integer, which no number maps to, stands for NaN and wins.
template <class Float, bool kIsMax>
struct Ordered {
  using Storage = typename Float::Bits;
  using Value = std::make_signed_t<Storage>;
  static constexpr std::size_t kLanes = 0;
  static constexpr Storage kMagnitude = static_cast<Storage>(Float::kMagnitude);
  static constexpr Value kNanKey =
      kIsMax ? static_cast<Value>(kMagnitude) : static_cast<Value>(kMagnitude + 1u);

  WHORL_HOST_DEVICE static Value load(Storage bits) {
    const Storage magnitude = bits & kMagnitude;
    const Value key = flip(static_cast<Value>(bits));
    return select(magnitude >= static_cast<Storage>(Float::kFirstNan), kNanKey, key);
  }
  WHORL_HOST_DEVICE static Storage store(Value key) {
    return select(key == kNanKey, static_cast<Storage>(Float::kNan),
                  static_cast<Storage>(flip(key)));
  }

 private:
  WHORL_HOST_DEVICE static Value flip(Value value) {
    const auto sign = static_cast<Value>(value >> (8 * sizeof(Value) - 1));
    return static_cast<Value>(value ^ (sign & static_cast<Value>(kMagnitude)));
  }
};

struct Sum {
  template <class V>
  WHORL_HOST_DEVICE static V apply(V a, V b) {
    return static_cast<V>(a + b);
  }
};
struct Prod {
  template <class V>
  WHORL_HOST_DEVICE static V apply(V a, V b) {
    // Narrow integers would be multiplied as ints, of which the product may not overflow.
    if constexpr (std::is_integral_v<V> && sizeof(V) < sizeof(int)) {
      return static_cast<V>(static_cast<unsigned>(a) * static_cast<unsigned>(b));
    } else {
      return static_cast<V>(a * b);
    }
  }
};
struct Max {
  template <class V>
  WHORL_HOST_DEVICE static V apply(V a, V b) {
    return a > b ? a : b;
  }
};
struct Min {
  template <class V>
  WHORL_HOST_DEVICE static V apply(V a, V b) {
    return a < b ? a : b;
  }
};
struct BitAnd {
  template <class V>
  WHORL_HOST_DEVICE static V apply(V a, V b) {
    return static_cast<V>(a & b);
  }
};
struct BitOr {
  template <class V>
  WHORL_HOST_DEVICE static V apply(V a, V b) {
    return static_cast<V>(a | b);
  }
};
struct BitXor {
  template <class V>
  WHORL_HOST_DEVICE static V apply(V a, V b) {
    return static_cast<V>(a ^ b);
  }
};

} // namespace
} // namespace whorl::kernels
