// Tests of the division of ranges into vectors, and of moves between addresses that differ modulo
// 16.
#include "gpu/vectors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace whorl::gpu {
namespace {

constexpr std::uint64_t kMaxCount = 150;
alignas(16) std::byte memory[2 * kMaxCount * 8];

struct Range {
  std::uint64_t offset, count, size; ///< bytes, elements, bytes of an element
};
template <class Check>
void each_range(const Check& check) {
  for (const std::uint64_t size : {1u, 2u, 4u, 8u}) {
    for (std::uint64_t offset = 0; offset < 16; offset += size) {
      for (std::uint64_t count = 0; count <= kMaxCount; ++count) check({offset, count, size});
    }
  }
}

/// Checks that each element is in a vector or an edge, and that vectors are at addresses divisible
/// by 16.
void expect_complete(const Division& division, const Range& range) {
  const std::uint64_t bytes = range.count * range.size;
  std::vector<int> seen(bytes);
  for (std::uint64_t v = 0; v < division.vectors; ++v) {
    const std::uint64_t begin = division.head * range.size + v * kVectorBytes;
    ASSERT_EQ((range.offset + begin) % kVectorBytes, 0u);
    for (std::uint64_t i = 0; i < kVectorBytes; ++i) ++seen.at(begin + i);
  }
  for (std::uint64_t i = 0; i < division.edges; ++i) {
    const std::uint64_t begin = division.element(i, range.size) * range.size;
    for (std::uint64_t b = 0; b < range.size; ++b) ++seen.at(begin + b);
  }
  for (std::uint64_t b = 0; b < bytes; ++b) ASSERT_EQ(seen[b], 1) << b;
}

TEST(Division, OfAlignedVectorsIsComplete) {
  each_range([](const Range& range) {
    const auto division = Division::aligned(memory + range.offset, range.count, range.size);
    expect_complete(division, range);
    EXPECT_LT(division.edges * range.size, 2 * kVectorBytes);
  });
}

TEST(Division, OfWindowsIsCompleteAndLeavesRoomForTheirVectors) {
  each_range([](const Range& range) {
    const auto division = Division::windowed(memory + range.offset, range.count, range.size);
    expect_complete(division, range);
    EXPECT_LE(division.edges * range.size, 4 * kVectorBytes);
    if (division.vectors == 0) return;
    const std::uint64_t first = division.head * range.size;
    const std::uint64_t last = first + (division.vectors - 1) * kVectorBytes;
    EXPECT_GE(first, kVectorBytes);
    EXPECT_LE(last + 2 * kVectorBytes, range.count * range.size);
  });
}

TEST(Window, IsWhatLiesAtTheAddress) {
  for (std::size_t i = 0; i < sizeof memory; ++i) memory[i] = static_cast<std::byte>(i * 37 + 11);
  for (std::uint64_t offset = 16; offset < 48; ++offset) {
    Window window;
    window.load(memory + offset);
    const Vector got = window.get(memory + offset);
    ASSERT_EQ(std::memcmp(&got, memory + offset, sizeof got), 0) << offset;
  }
}

template <std::size_t kAlignment>
void expect_stores() {
  const Vector vector{{0x03020100u, 0x07060504u, 0x0b0a0908u, 0x0f0e0d0cu}};
  for (std::uint64_t offset = 16; offset < 32; offset += kAlignment) {
    std::memset(memory, 0xff, sizeof memory);
    store_anywhere<kAlignment>(memory + offset, vector);
    ASSERT_EQ(std::memcmp(memory + offset, &vector, sizeof vector), 0) << offset;
    ASSERT_EQ(memory[offset - 1], std::byte{0xff});
    ASSERT_EQ(memory[offset + 16], std::byte{0xff});
  }
}
TEST(Vector, IsStoredAtAnyAddress) {
  expect_stores<1>();
  expect_stores<2>();
  expect_stores<4>();
  expect_stores<8>();
}

} // namespace
} // namespace whorl::gpu
