#pragma once

// Conversions of whole vector registers for the 16- and 8-bit floating types, by instructions that
// compilers do not find by themselves: hardware float16, and packing. These conversions are 3 to 10
// times as fast as gcc 12's code for convert.h (docs/results/kernels.md).

#include <cstddef>
#include <cstdint>

#include "kernels/convert.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace whorl::kernels {
namespace {

/// Absence of vector conversions: the compiler vectorizes the loops of reduce_body.h.
template <class Float>
struct Lanes {
  static constexpr std::size_t kLanes = 0;
};

#if defined(__AVX2__)

#if defined(__AVX512F__)
using FloatLanes = __m512;
using HalfBits = __m256i; ///< 16 bits for each lane
using ByteBits = __m128i; ///< 8 bits for each lane
#else
using FloatLanes = __m256;
using HalfBits = __m128i;
using ByteBits = std::int64_t;
#endif
constexpr std::size_t kFloatLanes = sizeof(FloatLanes) / sizeof(float);
using WordLanes [[gnu::vector_size(sizeof(FloatLanes))]] = std::uint32_t;

template <class T>
WHORL_HOST_DEVICE T read(const void* from) {
  T bits;
  __builtin_memcpy(&bits, from, sizeof bits);
  return bits;
}
template <class T>
WHORL_HOST_DEVICE void write(void* to, T bits) {
  __builtin_memcpy(to, &bits, sizeof bits);
}

#if defined(__AVX512F__)
WHORL_HOST_DEVICE FloatLanes from_half(HalfBits bits) { return _mm512_cvtph_ps(bits); }
WHORL_HOST_DEVICE HalfBits to_half(FloatLanes values) {
  const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  const FloatLanes one_nan = _mm512_mask_mov_ps(values, nan, _mm512_set1_ps(__builtin_nanf("")));
  return _mm512_cvtps_ph(one_nan, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
WHORL_HOST_DEVICE FloatLanes from_upper_half(HalfBits bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
WHORL_HOST_DEVICE HalfBits narrow_to_half(WordLanes words) {
  return _mm512_cvtepi32_epi16(__builtin_bit_cast(__m512i, words));
}
WHORL_HOST_DEVICE ByteBits narrow_to_bytes(WordLanes words) {
  return _mm512_cvtepi32_epi8(__builtin_bit_cast(__m512i, words));
}
/// Shifts each byte left by kShift and copies its sign into the new upper bits.
template <int kShift>
WHORL_HOST_DEVICE HalfBits widen_bytes(ByteBits bits) {
  return _mm256_slli_epi16(_mm256_cvtepi8_epi16(bits), kShift);
}
WHORL_HOST_DEVICE HalfBits clear_exponent_top(HalfBits bits) {
  return _mm256_and_si256(bits, _mm256_set1_epi16(static_cast<short>(0xbfff)));
}
WHORL_HOST_DEVICE FloatLanes all(float value) { return _mm512_set1_ps(value); }
#else
WHORL_HOST_DEVICE FloatLanes from_half(HalfBits bits) { return _mm256_cvtph_ps(bits); }
WHORL_HOST_DEVICE HalfBits to_half(FloatLanes values) {
  const FloatLanes nan = _mm256_cmp_ps(values, values, _CMP_UNORD_Q);
  const FloatLanes one_nan = _mm256_blendv_ps(values, _mm256_set1_ps(__builtin_nanf("")), nan);
  return _mm256_cvtps_ph(one_nan, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
WHORL_HOST_DEVICE FloatLanes from_upper_half(HalfBits bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
WHORL_HOST_DEVICE HalfBits narrow_to_half(WordLanes words) {
  const __m256i all = __builtin_bit_cast(__m256i, words);
  return _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}
WHORL_HOST_DEVICE ByteBits narrow_to_bytes(WordLanes words) {
  const HalfBits halves = narrow_to_half(words);
  return _mm_cvtsi128_si64(_mm_packus_epi16(halves, halves));
}
template <int kShift>
WHORL_HOST_DEVICE HalfBits widen_bytes(ByteBits bits) {
  return _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_cvtsi64_si128(bits)), kShift);
}
WHORL_HOST_DEVICE HalfBits clear_exponent_top(HalfBits bits) {
  return _mm_and_si128(bits, _mm_set1_epi16(static_cast<short>(0xbfff)));
}
WHORL_HOST_DEVICE FloatLanes all(float value) { return _mm256_set1_ps(value); }
#endif

template <>
struct Lanes<Float16> {
  static constexpr std::size_t kLanes = kFloatLanes;
  WHORL_HOST_DEVICE static FloatLanes load_lanes(const void* from) {
    return from_half(read<HalfBits>(from));
  }
  WHORL_HOST_DEVICE static void store_lanes(void* to, FloatLanes values) {
    write(to, to_half(values));
  }
};

template <>
struct Lanes<Bfloat16> {
  static constexpr std::size_t kLanes = kFloatLanes;
  WHORL_HOST_DEVICE static FloatLanes load_lanes(const void* from) {
    return from_upper_half(read<HalfBits>(from));
  }
  WHORL_HOST_DEVICE static void store_lanes(void* to, FloatLanes values) {
    write(to, narrow_to_half(Bfloat16::encode_as<WordLanes>(values)));
  }
};

/// Conversions of float8e5m2, the upper half of a float16.
template <>
struct Lanes<Float8e5m2> {
  static constexpr std::size_t kLanes = kFloatLanes;
  WHORL_HOST_DEVICE static FloatLanes load_lanes(const void* from) {
    return from_half(widen_bytes<8>(read<ByteBits>(from)));
  }
  WHORL_HOST_DEVICE static void store_lanes(void* to, FloatLanes values) {
    write(to, narrow_to_bytes(Float8e5m2::encode_as<WordLanes>(values)));
  }
};

/// Conversions of float8e4m3. With its exponent and mantissa in the places of a float16's, the
/// number is 2^-8 of its value, subnormal or not, because the biases differ by 8. The NaN code
/// becomes 480, which is no number of the format.
template <>
struct Lanes<Float8e4m3> {
  static constexpr std::size_t kLanes = kFloatLanes;
  WHORL_HOST_DEVICE static FloatLanes load_lanes(const void* from) {
    const HalfBits half = clear_exponent_top(widen_bytes<7>(read<ByteBits>(from)));
    const FloatLanes values = from_half(half) * all(256.0f);
    const WordLanes words = __builtin_bit_cast(WordLanes, values);
    constexpr std::uint32_t kNanCode = __builtin_bit_cast(std::uint32_t, 480.0f);
    return __builtin_bit_cast(
        FloatLanes, select((words & 0x7fffffffu) == kNanCode, words | 0x7fc00000u, words));
  }
  WHORL_HOST_DEVICE static void store_lanes(void* to, FloatLanes values) {
    write(to, narrow_to_bytes(Float8e4m3::encode_as<WordLanes>(values)));
  }
};

#elif defined(__aarch64__)

using FloatLanes = float32x4_t;
constexpr std::size_t kFloatLanes = 4;

template <>
struct Lanes<Float16> {
  static constexpr std::size_t kLanes = kFloatLanes;
  WHORL_HOST_DEVICE static FloatLanes load_lanes(const void* from) {
    float16x4_t half;
    __builtin_memcpy(&half, from, sizeof half);
    return vcvt_f32_f16(half);
  }
  WHORL_HOST_DEVICE static void store_lanes(void* to, FloatLanes values) {
    const FloatLanes nan = vdupq_n_f32(__builtin_nanf(""));
    const float16x4_t half = vcvt_f16_f32(vbslq_f32(vceqq_f32(values, values), values, nan));
    __builtin_memcpy(to, &half, sizeof half);
  }
};

#else

using FloatLanes = float;
constexpr std::size_t kFloatLanes = 0;

#endif

} // namespace
} // namespace whorl::kernels
