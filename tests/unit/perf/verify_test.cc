#include "perf/common/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

namespace perf {
namespace {

std::uint64_t bits_at(const Tile& tile, std::size_t index, std::size_t bytes) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, tile.data() + index * bytes, bytes);
  return bits;
}

/// Returns the value of a floating element, decoded independently of encode().
double decode(const TypeInfo& info, std::uint64_t bits) {
  if (info.bytes == 8) return std::bit_cast<double>(bits);
  if (info.bytes == 4) return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  const int bias = (1 << (info.exponent_bits - 1)) - 1;
  const auto mantissa = static_cast<double>(bits & ((1u << info.mantissa_bits) - 1));
  const auto exponent =
      static_cast<int>((bits >> info.mantissa_bits) & ((1u << info.exponent_bits) - 1));
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, 1 - bias - info.mantissa_bits)
                    : std::ldexp(1 + std::ldexp(mantissa, -info.mantissa_bits), exponent - bias);
  return (bits >> (info.mantissa_bits + info.exponent_bits)) != 0 ? -magnitude : magnitude;
}

/// Returns whether rounding to the element type leaves the value unchanged.
bool representable(const TypeInfo& info, double value) {
  return decode(info, encode(info, value)) == value;
}

TEST(Encode, GivesTheKnownBits) {
  const TypeInfo& half = info_of(XCCL(Float16));
  EXPECT_EQ(encode(half, 1.0), 0x3c00u);
  EXPECT_EQ(encode(half, -2.0), 0xc000u);
  EXPECT_EQ(encode(half, 2048.0), 0x6800u);
  EXPECT_EQ(encode(half, 0.0), 0u);
  EXPECT_EQ(encode(half, 0x1p-24), 1u); // the least subnormal
  EXPECT_EQ(encode(info_of(XCCL(Bfloat16)), 3.0), 0x4040u);
  EXPECT_EQ(encode(info_of(XCCL(Float32)), 1.0), 0x3f800000u);
  EXPECT_EQ(encode(info_of(XCCL(Float64)), 1.0), 0x3ff0000000000000u);
  EXPECT_EQ(encode(info_of(XCCL(Float8e4m3)), 1.0), 0x38u);
  EXPECT_EQ(encode(info_of(XCCL(Float8e4m3)), 448.0), 0x7eu);
  EXPECT_EQ(encode(info_of(XCCL(Float8e5m2)), -1.5), 0xbeu);
  EXPECT_EQ(encode(info_of(XCCL(Int32)), 2.0), 2u);
}

class Patterns : public ::testing::TestWithParam<std::tuple<int, int, int>> {
 protected:
  const TypeInfo& info() const { return all_types()[static_cast<std::size_t>(type())]; }
  int type() const { return std::get<0>(GetParam()); }
  Operator op() const { return all_operators()[static_cast<std::size_t>(std::get<1>(GetParam()))]; }
  int nranks() const { return std::get<2>(GetParam()); }
};

// Checks the claim on which bit-for-bit verification rests.
TEST_P(Patterns, EveryOrderOfCombinationIsExact) {
  if (!info().is_float) return; // integers wrap: exact in every order by nature
  const Pattern pattern(info().type, op(), nranks());
  std::vector<std::vector<int>> orders(4, std::vector<int>(static_cast<std::size_t>(nranks())));
  for (auto& order : orders) std::iota(order.begin(), order.end(), 0);
  std::reverse(orders[1].begin(), orders[1].end());
  // Even ranks first: the worst order for values that cancel between neighbours.
  std::stable_partition(orders[2].begin(), orders[2].end(), [](int r) { return r % 2 == 0; });
  std::mt19937 random(20240501);
  std::shuffle(orders[3].begin(), orders[3].end(), random);
  const double scale = op() == Operator::kMulSum ? kMulSumScalar : 1;

  for (std::size_t i = 0; i < kPeriod; i += 29) {
    for (const auto& order : orders) {
      double total = 0;
      for (std::size_t k = 0; k < order.size(); ++k) {
        const double value =
            scale * decode(info(), bits_at(pattern.input(order[k]), i, info().bytes));
        if (k == 0) {
          total = value;
        } else if (op() == Operator::kProd) {
          total *= value;
        } else if (op() == Operator::kMax) {
          total = std::max(total, value);
        } else if (op() == Operator::kMin) {
          total = std::min(total, value);
        } else {
          total += value;
        }
        ASSERT_TRUE(representable(info(), total)) << "partial result " << total << " at " << i;
      }
      if (op() == Operator::kAvg) {
        // Division and multiplication by the reciprocal both give the result.
        ASSERT_TRUE(representable(info(), total / nranks())) << total;
        total /= nranks();
      }
      ASSERT_EQ(encode(info(), total == 0 ? 0.0 : total),
                bits_at(pattern.reduced(), i, info().bytes))
          << i;
    }
  }
}

TEST_P(Patterns, EveryRanksContributionMatters) {
  // A result that lacks one rank's input, or has it twice, differs somewhere. Max and min of many
  // ranks, and averages of more ranks than exact integers, may not depend on a rank.
  if (op() == Operator::kMax || op() == Operator::kMin) return;
  const Pattern pattern(info().type, op(), nranks());
  for (int rank = 0; rank < nranks(); ++rank) {
    bool neutral = true;
    for (std::size_t i = 0; i < kPeriod && neutral; ++i) {
      const std::uint64_t bits = bits_at(pattern.input(rank), i, info().bytes);
      neutral = op() == Operator::kProd ? bits == encode(info(), 1) : bits == 0;
    }
    EXPECT_FALSE(neutral) << "rank " << rank;
  }
}

std::vector<std::tuple<int, int, int>> cases() {
  std::vector<std::tuple<int, int, int>> all;
  for (std::size_t type = 0; type < all_types().size(); ++type) {
    for (std::size_t op = 0; op < all_operators().size(); ++op) {
      if (!combines(all_types()[type], all_operators()[op])) continue;
      for (const int nranks : {1, 2, 3, 5, 8, 13, 24, 64}) {
        all.emplace_back(static_cast<int>(type), static_cast<int>(op), nranks);
      }
    }
  }
  return all;
}

std::string case_name(const ::testing::TestParamInfo<std::tuple<int, int, int>>& info) {
  return std::string(all_types()[static_cast<std::size_t>(std::get<0>(info.param))].name) + "_" +
         name_of(all_operators()[static_cast<std::size_t>(std::get<1>(info.param))]) + "_" +
         std::to_string(std::get<2>(info.param));
}
INSTANTIATE_TEST_SUITE_P(AllTypes, Patterns, ::testing::ValuesIn(cases()), case_name);

TEST(Pattern, IntegerReductionsAreThoseOfTheWidth) {
  const Pattern sum(XCCL(Int8), Operator::kSum, 3);
  const Pattern avg(XCCL(Int8), Operator::kAvg, 3);
  const Pattern largest(XCCL(Uint8), Operator::kMax, 3);
  bool wrapped = false, negative = false;
  for (std::size_t i = 0; i < kPeriod; ++i) {
    int total = 0, small_total = 0, most = 0;
    for (int rank = 0; rank < 3; ++rank) {
      total += static_cast<std::int8_t>(bits_at(sum.input(rank), i, 1));
      small_total += static_cast<std::int8_t>(bits_at(avg.input(rank), i, 1));
      most = std::max(most, static_cast<int>(bits_at(largest.input(rank), i, 1)));
    }
    wrapped = wrapped || total > 127;
    negative = negative || small_total < 0;
    ASSERT_EQ(static_cast<std::uint8_t>(total), bits_at(sum.reduced(), i, 1));
    ASSERT_EQ(static_cast<std::uint8_t>(small_total / 3), bits_at(avg.reduced(), i, 1));
    ASSERT_EQ(static_cast<std::uint64_t>(most), bits_at(largest.reduced(), i, 1));
  }
  EXPECT_TRUE(wrapped);
  EXPECT_TRUE(negative);
}

TEST(Pattern, TruthValuesAreDecidedByOneRank) {
  for (const Operator op : {Operator::kSum, Operator::kProd, Operator::kBxor}) {
    const Pattern pattern(XCCL(Bool), op, 3);
    std::array<int, 2> seen{};
    for (std::size_t i = 0; i < kPeriod; ++i) {
      int number = 0;
      for (int rank = 0; rank < 3; ++rank)
        number += bits_at(pattern.input(rank), i, 1) != 0 ? 1 : 0;
      const bool expected = op == Operator::kSum    ? number > 0
                            : op == Operator::kProd ? number == 3
                                                    : number % 2 == 1;
      ASSERT_EQ(bits_at(pattern.reduced(), i, 1), expected ? 1U : 0U);
      ++seen[expected ? 1 : 0];
    }
    EXPECT_GT(std::min(seen[0], seen[1]), 500);
  }
}

TEST(Pattern, RanksDiffer) {
  const Pattern copies(XCCL(Float32), Operator::kNone, 4);
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < a; ++b) EXPECT_NE(copies.input(a), copies.input(b));
  }
}

TEST(CountWrong, FindsOneFlippedBitAnywhere) {
  const Pattern pattern(XCCL(Float16), Operator::kSum, 2);
  constexpr std::size_t kCount = 3 * kPeriod + 5;
  std::vector<std::uint16_t> data(kCount);
  fill(data.data(), kCount, pattern.reduced(), 2, 1234);
  EXPECT_EQ(count_wrong(data.data(), kCount, pattern.reduced(), 2, 1234), 0u);
  for (std::size_t i : {std::size_t{0}, kPeriod - 1, kPeriod, kCount / 2, kCount - 1}) {
    for (unsigned bit : {0u, 7u, 15u}) {
      data[i] = static_cast<std::uint16_t>(data[i] ^ (1u << bit));
      EXPECT_EQ(count_wrong(data.data(), kCount, pattern.reduced(), 2, 1234), 1u);
      data[i] = static_cast<std::uint16_t>(data[i] ^ (1u << bit));
    }
  }
}

TEST(CountWrong, FindsResultsOfAnotherIteration) {
  const Pattern pattern(XCCL(Float32), Operator::kSum, 2);
  std::vector<float> data(1000);
  fill(data.data(), data.size(), pattern.reduced(), 4, 0);
  EXPECT_GT(count_wrong(data.data(), data.size(), pattern.reduced(), 4, 97), 900u);
}

TEST(CountWrong, CountsElementsNotBytes) {
  const Pattern pattern(XCCL(Float64), Operator::kNone, 1);
  std::vector<double> data(100);
  fill(data.data(), data.size(), pattern.input(0), 8, 0);
  std::memset(&data[10], 0, 2 * sizeof(double));
  EXPECT_EQ(count_wrong(data.data(), data.size(), pattern.input(0), 8, 0), 2u);
  EXPECT_EQ(count_wrong(data.data(), 0, pattern.input(0), 8, 0), 0u);
}

} // namespace
} // namespace perf
