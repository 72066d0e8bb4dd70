#include "kernels/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "wide.h"

namespace whorl {
namespace {

template <class Float, DataType kType>
struct Case {
  using Format = Float;
  static const test::WideFormat& wide() { return test::WideFormat::of(kType); }
};

template <class T>
class Convert : public ::testing::Test {
 protected:
  void expect_encode(float value) {
    const std::uint32_t expected = T::wide().nearest(value);
    ASSERT_EQ(T::Format::encode(value), expected)
        << value << " = " << std::hexfloat << value << ", bits " << std::hex
        << std::bit_cast<std::uint32_t>(value);
  }
  void expect_encode_around(float value) {
    for (const float sign : {1.0f, -1.0f}) {
      expect_encode(sign * value);
      expect_encode(sign * std::nextafter(value, 0.0f));
      expect_encode(sign * std::nextafter(value, std::numeric_limits<float>::infinity()));
    }
  }
};

using Cases =
    ::testing::Types<Case<Float16, DataType::kFloat16>, Case<Bfloat16, DataType::kBfloat16>,
                     Case<Float8e4m3, DataType::kFloat8e4m3>,
                     Case<Float8e5m2, DataType::kFloat8e5m2>>;
TYPED_TEST_SUITE(Convert, Cases);

TYPED_TEST(Convert, DecodesEveryCodeAndEncodesItBack) {
  using Format = typename TypeParam::Format;
  using Bits = typename Format::Bits;
  std::uint32_t nans = 0;
  for (std::uint32_t code = 0; code <= std::numeric_limits<Bits>::max(); ++code) {
    const float decoded = Format::decode(static_cast<Bits>(code));
    const double expected = TypeParam::wide().value(code);
    if (std::isnan(expected)) {
      ++nans;
      ASSERT_TRUE(std::isnan(decoded)) << code;
      ASSERT_EQ(Format::encode(decoded), Format::kNan) << code;
    } else {
      ASSERT_EQ(decoded, expected) << code;
      ASSERT_EQ(std::signbit(decoded), std::signbit(expected)) << code;
      ASSERT_EQ(Format::encode(decoded), code);
    }
  }
  EXPECT_EQ(nans, 2 * (TypeParam::wide().sign_bit() - Format::kFirstNan));
}

TYPED_TEST(Convert, RoundsHalfwayCasesToEven) {
  for (std::uint32_t code = 0; code < TypeParam::wide().largest(); ++code) {
    const double low = TypeParam::wide().value(code);
    const double high = TypeParam::wide().value(code + 1);
    const float middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(middle, (low + high) / 2) << "not a float32, so no halfway case";
    this->expect_encode_around(middle);
    this->expect_encode_around(static_cast<float>(high));
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(Convert, RoundsTheEdgeOfTheRange) {
  const double largest = TypeParam::wide().value(TypeParam::wide().largest());
  const double before = TypeParam::wide().value(TypeParam::wide().largest() - 1);
  this->expect_encode_around(static_cast<float>(largest));
  this->expect_encode_around(static_cast<float>(largest + (largest - before) / 2));
  this->expect_encode_around(std::numeric_limits<float>::max());
  this->expect_encode(std::numeric_limits<float>::infinity());
  this->expect_encode(-std::numeric_limits<float>::infinity());
  using Format = typename TypeParam::Format;
  const float huge = 3e38f * 3e38f;
  EXPECT_EQ(Format::encode(huge), Format::kOverflow);
  EXPECT_EQ(TypeParam::wide().sign_bit() - 1, Format::kMagnitude);
}

TYPED_TEST(Convert, RoundsEveryExponent) {
  constexpr std::uint32_t kSeed = 1;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  for (std::uint32_t high = 0; high < 512; ++high) {
    for (int i = 0; i < 512; ++i) {
      // Besides random mantissas: no bits, all bits, or a short run of ones after the leading bits.
      std::uint32_t mantissa = random() & 0x7fffffu;
      if (i < 24) mantissa = 0x7fffffu >> i;
      if (i >= 24 && i < 48) mantissa = 0x7fffffu & ~(0x7fffffu >> (i - 24));
      if (i >= 48 && i < 71) mantissa = 1u << (i - 48);
      this->expect_encode(std::bit_cast<float>((high << 23) | mantissa));
      if (this->HasFatalFailure()) return;
    }
  }
}

TEST(ConvertKnownValues, AreAsPublished) {
  EXPECT_EQ(Float16::encode(1.0f), 0x3c00);
  EXPECT_EQ(Float16::encode(65504.0f), 0x7bff);
  EXPECT_EQ(Float16::encode(65520.0f), 0x7c00);
  EXPECT_EQ(Bfloat16::encode(1.0f), 0x3f80);
  EXPECT_EQ(Float8e4m3::encode(448.0f), 0x7e);
  EXPECT_EQ(Float8e4m3::encode(-1e9f), 0xfe);
  EXPECT_EQ(Float8e4m3::decode(0x01), 0.001953125f);
  EXPECT_TRUE(std::isnan(Float8e4m3::decode(0x7f)));
  EXPECT_TRUE(std::isnan(Float8e4m3::decode(0xff)));
  EXPECT_EQ(Float8e5m2::encode(57344.0f), 0x7b);
  EXPECT_EQ(Float8e5m2::encode(1e9f), 0x7c);
  EXPECT_EQ(Float8e5m2::decode(0x01), 0.0000152587890625f);
}

} // namespace
} // namespace whorl
