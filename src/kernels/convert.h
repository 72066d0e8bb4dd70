#pragma once

#include <cstdint>
#include <type_traits>

/// Marker of functions that are also meant for a device compiler. On the host they are always
/// inlined: the files that use them are compiled for several instruction sets, and an out-of-line
/// copy made for one of these must never be the one that the linker keeps for all.
#if defined(__CUDACC__)
#define WHORL_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define WHORL_HOST_DEVICE [[gnu::always_inline]] inline
#endif

namespace whorl {

/// Returns `condition ? yes : no` for integers, by arithmetic: compilers turn it into a vector
/// blend, while they make branches of some conditional expressions, and then the whole loop is
/// scalar.
template <class T>
requires std::is_integral_v<T> WHORL_HOST_DEVICE T select(bool condition, T yes, T no) {
  using Bits = std::make_unsigned_t<T>;
  const Bits mask = static_cast<Bits>(Bits{0} - static_cast<Bits>(condition));
  return static_cast<T>((static_cast<Bits>(yes) & mask) |
                        (static_cast<Bits>(no) & static_cast<Bits>(~mask)));
}

/// Selects from vectors, element by element; `mask` is the result of a vector comparison.
template <class Mask, class T>
requires(!std::is_arithmetic_v<T>) WHORL_HOST_DEVICE T select(Mask mask, T yes, T no) {
  return mask ? yes : no;
}

/// Floating format of one sign bit, `kExponentBits` and `kMantissaBits`, in 16 or 8 bits. With
/// `kIeee` the largest exponent means infinity and NaN; without, as in OCP E4M3, only the code of
/// all ones is NaN and there is no infinity.
template <int kExponentBits, int kMantissaBits, bool kIeee>
struct SmallFloat {
  using Bits = std::conditional_t<kExponentBits + kMantissaBits == 15, std::uint16_t, std::uint8_t>;

  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  /// Mask of all bits but the sign. Magnitudes have the same order as integers and as numbers.
  static constexpr std::uint32_t kMagnitude = (1u << (kExponentBits + kMantissaBits)) - 1;
  static constexpr std::uint32_t kExponent = kMagnitude >> kMantissaBits << kMantissaBits;
  /// Smallest magnitude that is NaN; all above are, too.
  static constexpr std::uint32_t kFirstNan = kIeee ? kExponent + 1 : kMagnitude;
  /// NaN that every operation returns: positive and quiet.
  static constexpr std::uint32_t kNan =
      kIeee ? kExponent | (1u << (kMantissaBits - 1)) : kMagnitude;
  /// Magnitude of a number too large for the format: infinity, or the largest finite number.
  static constexpr std::uint32_t kOverflow = kFirstNan - 1;

  /// Largest finite number, as the bits of a float32.
  static constexpr std::uint32_t kLargest =
      ((kFirstNan - (kIeee ? 2 : 1)) << (23 - kMantissaBits)) +
      (static_cast<std::uint32_t>(127 - kBias) << 23);

  /// Converts to float, exactly.
  WHORL_HOST_DEVICE static float decode(Bits bits) {
    if constexpr (kExponentBits == 8) {
      return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << kShift);
    } else {
      const std::uint32_t magnitude = bits & kMagnitude;
      const std::uint32_t sign = static_cast<std::uint32_t>(bits & ~kMagnitude) << kSignShift;
      const float subnormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) * kUnit;
      std::uint32_t wide = (magnitude << kShift) + kRebias;
      if constexpr (kIeee) {
        wide = select(magnitude >= kExponent, wide + kRebias, wide);
      } else {
        wide = select(magnitude >= kFirstNan, kFloatNan, wide);
      }
      wide = select(magnitude >> kMantissaBits == 0, __builtin_bit_cast(std::uint32_t, subnormal),
                    wide);
      return __builtin_bit_cast(float, sign | wide);
    }
  }

  /// Rounds to nearest, ties to even. Gives kOverflow for too large numbers (infinity included),
  /// kNan for NaN.
  WHORL_HOST_DEVICE static Bits encode(float value) {
    return static_cast<Bits>(encode_as<std::uint32_t>(value));
  }

  /// Does encode() for float and uint32_t, or vectors of them: the code is in the low bits of a
  /// word.
  template <class Word, class Value>
  WHORL_HOST_DEVICE static Word encode_as(Value value) {
    const Word bits = __builtin_bit_cast(Word, value);
    const Word zero = bits ^ bits;
    const Word magnitude = bits & 0x7fffffffu;
    // Half a unit in the last place, less one, plus the last bit that stays: a carry out of the
    // dropped bits is the rounding, and a carry into the exponent is right as it is.
    const Word round = ((bits >> kShift) & 1u) + (kHalf - 1);
    Word code;
    if constexpr (kExponentBits == 8) {
      code = (bits + round) >> kShift;
    } else {
      code = (magnitude - kRebias + round) >> kShift;
      code = select(magnitude >= kTooLarge, zero + kOverflow, code);
      // Below the normal range, adding a number whose last place is the format's smallest unit
      // lets the processor round.
      const Value shifted = __builtin_bit_cast(Value, magnitude) + kMagic;
      const Word subnormal =
          __builtin_bit_cast(Word, shifted) - __builtin_bit_cast(std::uint32_t, kMagic);
      code = select(magnitude < kFirstNormal, subnormal, code);
      code = code | ((bits & 0x80000000u) >> kSignShift);
    }
    return select(magnitude > 0x7f800000u, zero + kNan, code);
  }

 private:
  static constexpr float power_of_two(int exponent) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(exponent + 127) << 23);
  }
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr int kSignShift = 31 - kExponentBits - kMantissaBits;
  static constexpr std::uint32_t kHalf = 1u << (kShift - 1);
  static constexpr std::uint32_t kFloatNan = 0x7fc00000u;
  static constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
  static constexpr std::uint32_t kFirstNormal = kRebias + (1u << 23);
  /// Smallest float32 bits whose exponent is too large; below, rounding may still overflow.
  static constexpr std::uint32_t kTooLarge = (kOverflow << kShift) + kRebias;
  static constexpr float kUnit = power_of_two(kExponentBits == 8 ? 0 : 1 - kBias - kMantissaBits);
  static constexpr float kMagic = power_of_two(1 - kBias - kMantissaBits + 23);
};

using Float16 = SmallFloat<5, 10, true>;
using Bfloat16 = SmallFloat<8, 7, true>;
using Float8e4m3 = SmallFloat<4, 3, false>;
using Float8e5m2 = SmallFloat<5, 2, true>;

} // namespace whorl
