#include "kernels/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "wide.h"

namespace whorl {
namespace {

constexpr std::uint64_t kSeed = 20240229;
constexpr std::size_t kLongest = 4097;
constexpr std::size_t kCounts[] = {0, 1, 2, 15, 16, 17, 63, 64, 65, 1000, kLongest};
constexpr std::size_t kFans[] = {1, 2, 3, 4, 5, 8, 9};
constexpr std::size_t kMaxSources = 9;
constexpr std::size_t kMargin = 64;
constexpr auto kCanary = std::byte{0xa5};

std::vector<Simd> supported_simds() {
  std::vector<Simd> simds;
  for (const Simd simd : {Simd::kScalar, Simd::kAvx2, Simd::kAvx512, Simd::kNeon}) {
    if (supported(simd)) simds.push_back(simd);
  }
  return simds;
}

/// Buffer that starts `shift` bytes after an aligned address, ends with its allocation, so that a
/// sanitizer detects reads past it, and has canaries before it.
class Buffer {
 public:
  Buffer(std::size_t bytes, std::size_t shift)
      : memory_(kMargin + shift + bytes, kCanary), begin_(kMargin + shift) {}
  std::byte* data() { return memory_.data() + begin_; }
  void append_canary() { memory_.resize(memory_.size() + kMargin, kCanary); }
  bool holds(std::span<const std::byte> expected) const {
    return std::memcmp(memory_.data() + begin_, expected.data(), expected.size()) == 0 &&
           std::all_of(memory_.begin(), memory_.begin() + static_cast<std::ptrdiff_t>(begin_),
                       [](std::byte b) { return b == kCanary; }) &&
           std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(begin_ + expected.size()),
                       memory_.end(), [](std::byte b) { return b == kCanary; });
  }

 private:
  std::vector<std::byte> memory_;
  std::size_t begin_;
};

/// Elements of one type for kMaxSources sources. A quarter has arbitrary bits, so that there are
/// NaN, infinities, subnormal and huge numbers; the rest is moderate, so that long sums stay
/// finite.
class Data {
 public:
  explicit Data(DataType type) : type_(type), size_(size_of(type)) {
    std::mt19937_64 random(kSeed + static_cast<std::uint64_t>(type));
    for (auto& source : sources_) {
      source.resize(kLongest * size_);
      for (std::size_t i = 0; i < kLongest; ++i) {
        const std::uint64_t bits = random();
        // The index decides, so that an element is wild or moderate in all sources.
        const std::uint64_t element = i % 4 == 3 ? wild(bits) : moderate(bits);
        std::memcpy(&source[i * size_], &element, size_);
      }
    }
  }

  std::span<const std::byte> source(std::size_t k) const { return sources_[k]; }

  std::vector<std::byte> expected(ReduceOp op, std::size_t fan, int divisor) const {
    std::vector<std::byte> result(kLongest * size_);
    std::vector<std::uint64_t> operands(fan);
    for (std::size_t i = 0; i < kLongest; ++i) {
      for (std::size_t k = 0; k < fan; ++k) {
        operands[k] = 0;
        std::memcpy(&operands[k], &sources_[k][i * size_], size_);
      }
      const std::uint64_t element = test::expected_element(type_, op, operands, divisor);
      std::memcpy(&result[i * size_], &element, size_);
    }
    return result;
  }

 private:
  /// Returns arbitrary bits; every third element is a zero, an infinity or a NaN in some sources.
  std::uint64_t wild(std::uint64_t bits) const {
    if (!is_float(type_) || bits % 3 != 0) return bits;
    const std::uint64_t sign = (bits >> 20 & 1) << (size_ * 8 - 1);
    if (bits % 5 != 0) return sign;
    switch (type_) {
      case DataType::kFloat16:
        return sign | 0x7c00 | (bits >> 21 & 1);
      case DataType::kBfloat16:
        return sign | 0x7f80 | (bits >> 21 & 1);
      case DataType::kFloat32:
        return sign | 0x7f800000 | (bits >> 21 & 1);
      case DataType::kFloat64:
        return sign | 0x7ff0000000000000 | (bits >> 21 & 1);
      case DataType::kFloat8e4m3:
        return sign | 0x7e | (bits >> 21 & 1);
      default: // float8e5m2
        return sign | 0x7c | (bits >> 21 & 1);
    }
  }
  /// Returns a number of about 2^-4 to 2^4 with random sign and mantissa.
  std::uint64_t moderate(std::uint64_t bits) const {
    const std::uint64_t exponent = bits >> 56 & 7;
    const std::uint64_t sign = bits >> 63;
    switch (type_) {
      case DataType::kFloat16:
        return sign << 15 | (exponent + 12) << 10 | (bits & 0x3ff);
      case DataType::kBfloat16:
        return sign << 15 | (exponent + 124) << 7 | (bits & 0x7f);
      case DataType::kFloat32:
        return sign << 31 | (exponent + 124) << 23 | (bits & 0x7fffff);
      case DataType::kFloat64:
        return sign << 63 | (exponent + 1020) << 52 | (bits & 0xfffffffffffff);
      case DataType::kFloat8e4m3:
        return sign << 7 | (exponent + 4) << 3 | (bits & 7);
      case DataType::kFloat8e5m2:
        return sign << 7 | (exponent + 12) << 2 | (bits & 3);
      case DataType::kBool: // false in half of the sources
        return exponent < 4 ? 0 : bits;
      default:
        return bits;
    }
  }

  DataType type_;
  std::size_t size_;
  std::vector<std::byte> sources_[kMaxSources];
};

struct TypeAndOp {
  DataType type;
  ReduceOp op;
};

std::vector<TypeAndOp> all_types_and_ops() {
  std::vector<TypeAndOp> all;
  for (int type = 0; type < kNumDataTypes; ++type) {
    for (const ReduceOp op : kReduceOps) {
      if (combines(static_cast<DataType>(type), op))
        all.push_back({static_cast<DataType>(type), op});
    }
  }
  return all;
}

class Reduce : public ::testing::TestWithParam<TypeAndOp> {
 protected:
  Reduce() : type_(GetParam().type), op_(GetParam().op), size_(size_of(type_)), data_(type_) {}

  /// Returns the byte offset of buffer `k` in a placement: aligned, shifted by whole elements, or
  /// by odd bytes.
  std::size_t shift(int placement, std::size_t k) const {
    switch (placement) {
      case 0:
        return 0;
      case 1:
        return (k % 3 + 1) * size_;
      default:
        return 2 * k + 1;
    }
  }

  void check(Simd simd, std::size_t fan, std::size_t count, int placement, int divisor,
             std::span<const std::byte> expected) {
    std::vector<Buffer> sources;
    std::vector<const void*> from;
    for (std::size_t k = 0; k < fan; ++k) {
      sources.emplace_back(count * size_, shift(placement, k));
      if (count > 0) std::memcpy(sources[k].data(), data_.source(k).data(), count * size_);
      from.push_back(sources[k].data());
    }
    Buffer destination(count * size_, shift(placement, 1));
    destination.append_canary();
    reduce_kernel(type_, op_, simd)(from, destination.data(), count, divisor);
    ASSERT_TRUE(destination.holds(expected.first(count * size_)))
        << describe(simd, fan, count, expected, destination.data()) << ", placement " << placement
        << ", divisor " << divisor;
    for (std::size_t k = 0; k < fan; ++k) {
      ASSERT_TRUE(sources[k].holds(data_.source(k).first(count * size_))) << "source " << k;
    }
  }

  std::string describe(Simd simd, std::size_t fan, std::size_t count,
                       std::span<const std::byte> expected, const std::byte* got) const {
    std::string text = std::string(name_of(simd)) + ", " + std::to_string(fan) + " sources, " +
                       std::to_string(count) + " elements, seed " + std::to_string(kSeed);
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t want = 0, have = 0;
      std::memcpy(&want, &expected[i * size_], size_);
      std::memcpy(&have, got + i * size_, size_);
      if (want == have) continue;
      char first[128];
      std::snprintf(first, sizeof first, "; element %zu is %#llx, not %#llx, of", i,
                    static_cast<unsigned long long>(have), static_cast<unsigned long long>(want));
      text += first;
      for (std::size_t k = 0; k < fan; ++k) {
        std::uint64_t operand = 0;
        std::memcpy(&operand, &data_.source(k)[i * size_], size_);
        std::snprintf(first, sizeof first, " %#llx", static_cast<unsigned long long>(operand));
        text += first;
      }
      break;
    }
    return text;
  }

  const DataType type_;
  const ReduceOp op_;
  const std::size_t size_;
  const Data data_;
};

TEST_P(Reduce, GivesTheBitsOfTheWideReference) {
  for (const std::size_t fan : kFans) {
    const int divisor = op_ == ReduceOp::kAvg ? static_cast<int>(fan) : 1;
    const std::vector<std::byte> expected = data_.expected(op_, fan, divisor);
    for (const Simd simd : supported_simds()) {
      for (const std::size_t count : kCounts) {
        for (const int placement : {0, 1, 2}) {
          check(simd, fan, count, placement, divisor, expected);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(Reduce, WorksInPlace) {
  for (const std::size_t fan : kFans) {
    for (const int divisor : {1, op_ == ReduceOp::kAvg ? 3 : 1}) {
      const std::vector<std::byte> expected = data_.expected(op_, fan, divisor);
      for (const Simd simd : supported_simds()) {
        for (std::size_t k = 0; k < fan; ++k) {
          std::vector<Buffer> sources;
          std::vector<const void*> from;
          for (std::size_t s = 0; s < fan; ++s) {
            sources.emplace_back(kLongest * size_, shift(2, s));
            std::memcpy(sources[s].data(), data_.source(s).data(), kLongest * size_);
            from.push_back(sources[s].data());
          }
          for (Buffer& source : sources) source.append_canary();
          for (std::size_t s = 0; s < fan; ++s) from[s] = sources[s].data();
          reduce_kernel(type_, op_, simd)(from, sources[k].data(), kLongest, divisor);
          for (std::size_t s = 0; s < fan; ++s) {
            ASSERT_TRUE(sources[s].holds(s == k ? expected : data_.source(s)))
                << describe(simd, fan, kLongest, expected, sources[s].data()) << ", source " << s
                << ", in place of " << k;
          }
        }
      }
    }
  }
}

TEST_P(Reduce, DividesByTheDivisorOnce) {
  for (const int divisor : {1, 2, 3, 7, 127, 128, 129, 1000, 65536, 1 << 24}) {
    const std::vector<std::byte> expected = data_.expected(op_, 2, divisor);
    for (const Simd simd : supported_simds()) {
      check(simd, 2, kLongest, 0, divisor, expected);
      if (HasFatalFailure()) return;
    }
  }
}

std::string test_name(const ::testing::TestParamInfo<TypeAndOp>& info) {
  return std::string(name_of(info.param.type)) + "_" + std::string(name_of(info.param.op));
}
INSTANTIATE_TEST_SUITE_P(All, Reduce, ::testing::ValuesIn(all_types_and_ops()), test_name);

TEST(Scale, IsAProductWithTheScalarRoundedOnce) {
  for (int t = 0; t < kNumDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    const std::size_t size = size_of(type);
    const Data data(type);
    for (std::size_t s = 0; s < 64; ++s) {
      const std::span<const std::byte> scalar = data.source(1).subspan(s * size, size);
      std::vector<std::byte> expected(kLongest * size);
      std::uint64_t operands[2] = {};
      std::memcpy(&operands[1], scalar.data(), size);
      for (std::size_t i = 0; i < kLongest; ++i) {
        std::memcpy(&operands[0], &data.source(0)[i * size], size);
        const std::uint64_t element = test::expected_element(type, ReduceOp::kProd, operands, 1);
        std::memcpy(&expected[i * size], &element, size);
      }
      Buffer misaligned(size, 1);
      std::memcpy(misaligned.data(), scalar.data(), size);
      for (const Simd simd : supported_simds()) {
        for (const std::size_t count : kCounts) {
          Buffer source(count * size, s % 5), destination(count * size, s % 3);
          destination.append_canary();
          if (count > 0) std::memcpy(source.data(), data.source(0).data(), count * size);
          const auto wanted = std::span<const std::byte>(expected).first(count * size);
          scale_kernel(type, simd)(source.data(), destination.data(), count, misaligned.data());
          ASSERT_TRUE(destination.holds(wanted)) << name_of(type) << ", " << name_of(simd);
          scale_kernel(type, simd)(source.data(), source.data(), count, misaligned.data());
          ASSERT_TRUE(source.holds(wanted)) << name_of(type) << " in place, " << name_of(simd);
        }
      }
    }
  }
}

void expect_copies(CopyKernel (*kernel_of)(Simd)) {
  for (const Simd simd : {Simd::kScalar, Simd::kAvx2, Simd::kAvx512, Simd::kNeon}) {
    if (!supported(simd)) continue;
    SCOPED_TRACE(name_of(simd));
    std::vector<unsigned char> from(9216), to(9216);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 7 + 1);
    for (const std::size_t bytes : {0U, 1U, 15U, 63U, 64U, 65U, 127U, 128U, 500U, 8300U}) {
      for (std::size_t shift = 0; shift < 66; ++shift) {
        std::fill(to.begin(), to.end(), static_cast<unsigned char>(0xee));
        kernel_of(simd)(to.data() + 64 + shift, from.data() + shift % 5, bytes);
        nontemporal_fence();
        std::vector<unsigned char> expected(to.size(), 0xee);
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(shift % 5), bytes,
                    expected.begin() + static_cast<std::ptrdiff_t>(64 + shift));
        ASSERT_EQ(to, expected) << bytes << " bytes, shifted by " << shift;
      }
    }
  }
}
TEST(NontemporalCopy, CopiesAnySizeAtAnyAlignment) {
  expect_copies([](Simd simd) { return nontemporal_copy(simd); });
}
TEST(VectorCopy, CopiesAnySizeAtAnyAlignment) {
  expect_copies([](Simd simd) { return vector_copy(simd); });
}

} // namespace
} // namespace whorl
