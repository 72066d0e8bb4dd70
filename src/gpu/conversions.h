#pragma once

// Conversions between the elements of a vector and values: by the formats of the host's kernels, or
// two at a time by instructions of the device where these give the same bits.

#include <cstdint>
#include <type_traits>

#include "gpu/vectors.h"
#include "kernels/formats.h"

namespace whorl::gpu {
namespace {

/// Conversions by the format itself, one element after the other.
template <class Format>
struct OneByOne {
  using Storage = typename Format::Storage;
  using Value = typename Format::Value;
  static constexpr int kPerVector = kVectorBytes / sizeof(Storage);
  struct alignas(kVectorBytes) Elements {
    Storage values[kPerVector];
  };

  WHORL_HOST_DEVICE static void unpack(const Vector& vector, Value (&values)[kPerVector]) {
    static_assert(sizeof(Elements) == kVectorBytes); // nvcc 12 must complete the type for the cast
    const auto elements = __builtin_bit_cast(Elements, vector);
    WHORL_UNROLL
    for (int e = 0; e < kPerVector; ++e) values[e] = Format::load(elements.values[e]);
  }
  WHORL_HOST_DEVICE static Vector pack(const Value (&values)[kPerVector]) {
    Elements elements;
    WHORL_UNROLL
    for (int e = 0; e < kPerVector; ++e) elements.values[e] = Format::store(values[e]);
    return __builtin_bit_cast(Vector, elements);
  }
};

/// Conversions of a SmallFloat, by Instructions:
///     widen(pair, low, high)   two codes in the low bits of a word; any NaN for NaN
///     narrow(low, high)        two codes, to nearest, ties to even. NaN and infinities of
///                              float8e5m2 need not be right, see corrected().
template <class Float, class Instructions>
struct ByPairs {
  static constexpr int kBits = 8 * sizeof(typename Float::Bits);
  static constexpr int kPerVector = 8 * kVectorBytes / kBits;
  static constexpr int kPerWord = 32 / kBits;

  WHORL_HOST_DEVICE static void unpack(const Vector& vector, float (&values)[kPerVector]) {
    WHORL_UNROLL
    for (int e = 0; e < kPerVector; e += 2) {
      const std::uint32_t pair = vector.words[e / kPerWord] >> (e % kPerWord * kBits);
      Instructions::widen(pair, values[e], values[e + 1]);
    }
  }

  WHORL_HOST_DEVICE static Vector pack(const float (&values)[kPerVector]) {
    Vector vector{};
    bool right = true;
    WHORL_UNROLL
    for (int e = 0; e < kPerVector; e += 2) {
      const std::uint32_t pair = Instructions::narrow(values[e], values[e + 1]);
      vector.words[e / kPerWord] |= pair << (e % kPerWord * kBits);
      right = right & are_right(values[e], values[e + 1]);
    }
    if (!right) correct(vector, values); // one branch for each vector, seldom taken
    return vector;
  }

 private:
  /// Whether the format has infinities: the instructions give the largest number instead, for
  /// values from half a place above it on.
  static constexpr bool kHasInfinities = std::is_same_v<Float, Float8e5m2>;
  static constexpr float kInfinite = 61440;
  static constexpr std::uint32_t kMask = (1u << kBits) - 1;

  WHORL_HOST_DEVICE static bool are_right(float low, float high) {
    if constexpr (kHasInfinities) {
      return __builtin_fabsf(low) < kInfinite && __builtin_fabsf(high) < kInfinite;
    } else {
      return (low == low) & (high == high);
    }
  }
  WHORL_HOST_DEVICE static void correct(Vector& vector, const float (&values)[kPerVector]) {
    WHORL_UNROLL
    for (int e = 0; e < kPerVector; ++e) {
      const int shift = e % kPerWord * kBits;
      std::uint32_t& word = vector.words[e / kPerWord];
      const std::uint32_t code = corrected(word >> shift & kMask, values[e]);
      word = (word & ~(kMask << shift)) | code << shift;
    }
  }
  WHORL_HOST_DEVICE static std::uint32_t corrected(std::uint32_t code, float value) {
    if (value != value) return Float::kNan;
    if (kHasInfinities && __builtin_fabsf(value) >= kInfinite) {
      return (code & ~Float::kMagnitude) | Float::kOverflow;
    }
    return code;
  }
};

template <class Format>
struct Conversions : OneByOne<Format> {};

// With WHORL_PORTABLE_CONVERSIONS the formats' own conversions are used on the device, too.
#if defined(__CUDA_ARCH__) && !defined(WHORL_PORTABLE_CONVERSIONS)

struct Float16Instructions {
  __device__ static void widen(std::uint32_t pair, float& low, float& high) {
    asm("{.reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
        : "=f"(low), "=f"(high)
        : "r"(pair));
  }
  __device__ static std::uint32_t narrow(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
};
template <>
struct Conversions<kernels::Widened<Float16>> : ByPairs<Float16, Float16Instructions> {};

struct Bfloat16Instructions {
  __device__ static void widen(std::uint32_t pair, float& low, float& high) {
    low = __uint_as_float(pair << 16);
    high = __uint_as_float(pair & 0xffff0000u);
  }
  __device__ static std::uint32_t narrow(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
};
template <>
struct Conversions<kernels::Widened<Bfloat16>> : ByPairs<Bfloat16, Bfloat16Instructions> {};

#if __CUDA_ARCH__ >= 890
struct Float8e4m3Instructions {
  __device__ static void widen(std::uint32_t pair, float& low, float& high) {
    std::uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(pair)));
    Float16Instructions::widen(halves, low, high);
  }
  __device__ static std::uint32_t narrow(float low, float high) {
    std::uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
  }
};
template <>
struct Conversions<kernels::Widened<Float8e4m3>> : ByPairs<Float8e4m3, Float8e4m3Instructions> {};

struct Float8e5m2Instructions {
  __device__ static void widen(std::uint32_t pair, float& low, float& high) {
    Float16Instructions::widen(__byte_perm(pair, 0, 0x1404), low, high); // upper bytes of float16
  }
  __device__ static std::uint32_t narrow(float low, float high) {
    std::uint16_t pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
  }
};
template <>
struct Conversions<kernels::Widened<Float8e5m2>> : ByPairs<Float8e5m2, Float8e5m2Instructions> {};
#endif

#endif

} // namespace
} // namespace whorl::gpu
