// Tests of the device kernels' conversions by pairs, with NVIDIA's model of the instructions (the
// host side of cuda_fp8.h, cuda_fp16.h and cuda_bf16.h) in their place, against the formats of the
// host's kernels. tests/gpu/nccl_random.py compares the instructions themselves on a device.
#include "gpu/conversions.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace whorl {
namespace {

struct Float16Model {
  using Float = Float16;
  static void widen(std::uint32_t pair, float& low, float& high) {
    low = __half2float(__half_raw{static_cast<unsigned short>(pair)});
    high = __half2float(__half_raw{static_cast<unsigned short>(pair >> 16)});
  }
  static std::uint32_t narrow(float low, float high) { return code(low) | code(high) << 16; }
  static std::uint32_t code(float value) { return __half_raw(__float2half_rn(value)).x; }
};

struct Bfloat16Model {
  using Float = Bfloat16;
  static void widen(std::uint32_t pair, float& low, float& high) {
    low = __bfloat162float(__nv_bfloat16_raw{static_cast<unsigned short>(pair)});
    high = __bfloat162float(__nv_bfloat16_raw{static_cast<unsigned short>(pair >> 16)});
  }
  static std::uint32_t narrow(float low, float high) { return code(low) | code(high) << 16; }
  static std::uint32_t code(float value) { return __nv_bfloat16_raw(__float2bfloat16_rn(value)).x; }
};

template <class FloatType, __nv_fp8_interpretation_t kType>
struct Float8Model {
  using Float = FloatType;
  static void widen(std::uint32_t pair, float& low, float& high) {
    const auto halves = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), kType);
    Float16Model::widen(halves.x | static_cast<std::uint32_t>(halves.y) << 16, low, high);
  }
  static std::uint32_t narrow(float low, float high) {
    return __nv_cvt_float2_to_fp8x2(float2{low, high}, __NV_SATFINITE, kType);
  }
};

template <class Model>
class Conversions : public ::testing::Test {
 protected:
  using Float = typename Model::Float;
  using Bits = typename Float::Bits;
  using Pairs = gpu::ByPairs<Float, Model>;
  static constexpr std::size_t kPerVector = gpu::kVectorBytes / sizeof(Bits);
  static constexpr std::uint32_t kCodes = 1u << (8 * sizeof(Bits));

  /// Returns whether a vector of these values packs to the bits of the host's formats.
  static ::testing::AssertionResult packs_as_host(const float (&values)[kPerVector]) {
    std::array<Bits, kPerVector> got;
    const gpu::Vector vector = Pairs::pack(values);
    std::memcpy(got.data(), &vector, sizeof vector);
    for (std::size_t e = 0; e < kPerVector; ++e) {
      if (got[e] != Float::encode(values[e])) {
        return ::testing::AssertionFailure()
               << values[e] << " (" << std::hex << __builtin_bit_cast(std::uint32_t, values[e])
               << ") became " << +got[e] << ", not " << +Float::encode(values[e]);
      }
    }
    return ::testing::AssertionSuccess();
  }
  /// Checks all of `values`, one vector at a time.
  static void expect_all(const std::vector<float>& values) {
    for (std::size_t i = 0; i < values.size(); i += kPerVector) {
      float some[kPerVector]{};
      for (std::size_t e = 0; e < kPerVector && i + e < values.size(); ++e) some[e] = values[i + e];
      ASSERT_TRUE(packs_as_host(some));
    }
  }
};

using Models = ::testing::Types<Float16Model, Bfloat16Model, Float8Model<Float8e4m3, __NV_E4M3>,
                                Float8Model<Float8e5m2, __NV_E5M2>>;
class Name {
 public:
  template <class Model>
  static std::string GetName(int i) {
    return std::array{"float16", "bfloat16", "float8e4m3", "float8e5m2"}[static_cast<unsigned>(i)];
  }
};
TYPED_TEST_SUITE(Conversions, Models, Name);

TYPED_TEST(Conversions, WidenAllCodesAsTheHost) {
  using Narrow = typename TestFixture::Float;
  using Codes = std::array<typename TestFixture::Bits, TestFixture::kPerVector>;
  for (std::uint32_t code = 0; code < TestFixture::kCodes; ++code) {
    Codes codes;
    for (std::size_t e = 0; e < codes.size(); ++e) {
      codes[e] = static_cast<typename Codes::value_type>(code + e * 7);
    }
    float values[TestFixture::kPerVector];
    TestFixture::Pairs::unpack(__builtin_bit_cast(gpu::Vector, codes), values);
    for (std::size_t e = 0; e < codes.size(); ++e) {
      const float wanted = Narrow::decode(codes[e]);
      if (std::isnan(wanted)) {
        ASSERT_TRUE(std::isnan(values[e])) << +codes[e];
      } else {
        ASSERT_EQ(__builtin_bit_cast(std::uint32_t, values[e]),
                  __builtin_bit_cast(std::uint32_t, wanted))
            << +codes[e];
      }
    }
  }
}

TYPED_TEST(Conversions, NarrowAllTiesAsTheHost) {
  using Narrow = typename TestFixture::Float;
  std::vector<float> values;
  for (std::uint32_t code = 0; code < TestFixture::kCodes; ++code) {
    const float value = Narrow::decode(static_cast<typename TestFixture::Bits>(code));
    const float next = Narrow::decode(static_cast<typename TestFixture::Bits>(code + 1));
    const float middle = value / 2 + next / 2;
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float one : {value, middle}) {
      values.push_back(one);
      values.push_back(std::nextafter(one, infinity));
      values.push_back(std::nextafter(one, -infinity));
    }
  }
  for (const float edge : {61440.0f, 57344.0f, 65520.0f, 65504.0f, 464.0f, 448.0f, 480.0f, 0.0f}) {
    for (const float one : {edge, std::nextafter(edge, 1e9f), std::nextafter(edge, -1e9f)}) {
      values.push_back(one);
      values.push_back(-one);
    }
  }
  TestFixture::expect_all(values);
}

TYPED_TEST(Conversions, NarrowASweepOfAllFloatsAsTheHost) {
  constexpr std::uint64_t kStep = 1021; // step between the tested bit patterns
  float values[TestFixture::kPerVector];
  std::size_t n = 0;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += kStep) {
    values[n++] = __builtin_bit_cast(float, static_cast<std::uint32_t>(bits));
    if (n < TestFixture::kPerVector) continue;
    n = 0;
    ASSERT_TRUE(TestFixture::packs_as_host(values));
  }
}

TYPED_TEST(Conversions, NarrowNanAndInfinitiesAmongNumbersAsTheHost) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float odd : {nan, -nan, infinity, -infinity, 1e9f, -1e9f}) {
    for (std::size_t at = 0; at < TestFixture::kPerVector; ++at) {
      float values[TestFixture::kPerVector];
      for (std::size_t e = 0; e < TestFixture::kPerVector; ++e) {
        values[e] = 0.37f * static_cast<float>(e) - 1.9f;
      }
      values[at] = odd;
      ASSERT_TRUE(TestFixture::packs_as_host(values));
    }
  }
}

} // namespace
} // namespace whorl
