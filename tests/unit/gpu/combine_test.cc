// Tests of the device kernels' arithmetic and addressing, run without a device in two ways
// (device_kernels.h), against the reduction kernels of the host, which tests/unit/kernels compares
// with an independent reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gpu/work.h"
#include "kernels/reduce.h"
#include "tests/support/device_kernels.h"

namespace whorl {
namespace {

constexpr std::uint64_t kSeed = 11;
constexpr std::size_t kMargin = 64;

struct Case {
  DataType type;
  ReduceOp op;
};

/// Buffers of `count` elements inside larger ones, whose edges must not change.
class Buffers {
 public:
  Buffers(std::size_t n, std::size_t bytes, std::mt19937_64& random) : bytes_(bytes) {
    for (std::size_t k = 0; k < n; ++k) {
      auto& memory = memory_.emplace_back(bytes + 2 * kMargin + 16);
      std::generate(memory.begin(), memory.end(), [&] { return static_cast<std::byte>(random()); });
    }
    before_ = memory_;
  }
  /// Returns buffer k, `shift` bytes behind an address divisible by 16.
  std::byte* at(std::size_t k, std::size_t shift) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_[k].data() + kMargin);
    return memory_[k].data() + kMargin + (16 - address % 16) % 16 + shift % 16;
  }
  bool edges_untouched(std::size_t k, std::size_t shift) {
    const std::byte* const begin = memory_[k].data();
    const std::ptrdiff_t first = at(k, shift) - begin;
    const std::ptrdiff_t last = first + static_cast<std::ptrdiff_t>(bytes_);
    return std::equal(begin, begin + first, before_[k].begin()) &&
           std::equal(memory_[k].begin() + last, memory_[k].end(), before_[k].begin() + last);
  }

 private:
  std::size_t bytes_;
  std::vector<std::vector<std::byte>> memory_, before_;
};

class Combine : public ::testing::TestWithParam<Case> {
 protected:
  std::string kernel(std::size_t sources) const {
    const ReduceOp op = GetParam().op == ReduceOp::kAvg ? ReduceOp::kSum : GetParam().op;
    return "whorl_combine_" + std::string(name_of(GetParam().type)) + "_" +
           std::string(name_of(op)) + (sources <= 2 ? "_few" : "_many");
  }
  std::size_t size() const { return size_of(GetParam().type); }
  int divisor(std::size_t sources) const {
    return GetParam().op == ReduceOp::kAvg ? static_cast<int>(sources) : 1;
  }
  std::vector<std::byte> expected(const std::vector<const void*>& from, std::size_t count) const {
    std::vector<std::byte> result(count * size());
    void* to = result.data();
    reduce_kernel(GetParam().type, GetParam().op, Simd::kScalar)(from, to, count,
                                                                 divisor(from.size()));
    return result;
  }

  std::mt19937_64 random_{kSeed};
};

TEST_P(Combine, CombinesAllSourcesIntoAllDestinations) {
  for (const std::size_t n : {1u, 2u, 3u, 8u, 9u, 17u}) {
    for (const std::size_t count : {0u, 1u, 7u, 16u, 33u, 100u, 1000u}) {
      // Each buffer's alignment differs by `step` from that of the buffer before.
      for (const std::size_t step : {std::size_t{0}, size(), 3 * size(), std::size_t{1}}) {
        Buffers sources(n, count * size(), random_);
        Buffers destinations(3, count * size(), random_);
        gpu::Work work{};
        std::vector<const void*> from;
        for (std::size_t k = 0; k < n; ++k) {
          work.sources[k] = sources.at(k, size() + k * step);
          from.push_back(work.sources[k]);
        }
        for (std::size_t k = 0; k < 3; ++k) {
          work.destinations[k] = destinations.at(k, size() + (k + 1) * step);
        }
        work.segments[0] = {
            .count = count, .sources = static_cast<std::uint8_t>(n), .destinations = 3};
        work.n_segments = 1;
        work.divisor = divisor(n);
        gpu::align(work, size());
        const std::vector<std::byte> wanted = expected(from, count);
        test::run_combine(kernel(n), work, {.blocks = 3, .threads = 5});
        for (std::size_t k = 0; k < 3; ++k) {
          const std::byte* const got = work.destinations[k];
          ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), got))
              << n << " sources, " << count << " elements, step " << step << ", destination " << k;
          ASSERT_TRUE(destinations.edges_untouched(k, size() + (k + 1) * step))
              << n << " sources, " << count << " elements, step " << step;
        }
      }
    }
  }
}

TEST_P(Combine, WorksInPlace) {
  for (const std::size_t n : {2u, 3u, 9u}) {
    for (const std::size_t step : {std::size_t{0}, size()}) {
      Buffers buffers(n, 333 * size(), random_);
      gpu::Work work{};
      std::vector<const void*> from;
      for (std::size_t k = 0; k < n; ++k) {
        work.destinations[k] = buffers.at(k, size() + k * step);
        work.sources[k] = work.destinations[k];
        from.push_back(work.sources[k]);
      }
      work.segments[0] = {.count = 333,
                          .sources = static_cast<std::uint8_t>(n),
                          .destinations = static_cast<std::uint8_t>(n)};
      work.n_segments = 1;
      work.divisor = divisor(n);
      gpu::align(work, size());
      const std::vector<std::byte> wanted = expected(from, 333);
      test::run_combine(kernel(n), work, {.blocks = 2, .threads = 7});
      for (std::size_t k = 0; k < n; ++k) {
        ASSERT_EQ(std::memcmp(work.destinations[k], wanted.data(), wanted.size()), 0)
            << n << " buffers, step " << step;
      }
    }
  }
}

TEST_P(Combine, DoesNothingOnceItIsCancelled) {
  Buffers sources(2, 100 * size(), random_), destinations(1, 100 * size(), random_);
  gpu::Work work{};
  for (std::size_t k = 0; k < 2; ++k) work.sources[k] = sources.at(k, 0);
  work.destinations[0] = destinations.at(0, 0);
  work.segments[0] = {.count = 100, .sources = 2, .destinations = 1};
  work.n_segments = 1;
  work.divisor = divisor(2);
  const std::vector<std::byte> before(work.destinations[0], work.destinations[0] + 100 * size());
  gpu::StopWords cancelled{};
  cancelled.set();
  work.cancelled = &cancelled;
  gpu::align(work, size());
  test::run_combine(kernel(2), work, {.blocks = 2, .threads = 5});
  EXPECT_TRUE(std::equal(before.begin(), before.end(), work.destinations[0]));
  cancelled = {};
  test::run_combine(kernel(2), work, {.blocks = 2, .threads = 5});
  const std::vector<std::byte> wanted = expected({work.sources[0], work.sources[1]}, 100);
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), work.destinations[0]));
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (int type = 0; type < kNumDataTypes; ++type) {
    for (const ReduceOp op : kReduceOps) {
      if (combines(static_cast<DataType>(type), op)) {
        cases.push_back({static_cast<DataType>(type), op});
      }
    }
  }
  return cases;
}
std::string case_name(const ::testing::TestParamInfo<Case>& test) {
  return std::string(name_of(test.param.type)) + "_" + std::string(name_of(test.param.op));
}
INSTANTIATE_TEST_SUITE_P(All, Combine, ::testing::ValuesIn(all_cases()), case_name);

/// Checks that each block looks at a word of its own: only that of block 1 is set.
TEST(Copy, LeavesBlocksOutByTheirOwnWords) {
  std::mt19937_64 random{kSeed};
  Buffers source(1, 200, random), destination(1, 200, random);
  gpu::Work work{};
  work.sources[0] = source.at(0, 0);
  work.destinations[0] = destination.at(0, 0);
  work.n_segments = 2;
  for (std::uint32_t half = 0; half < 2; ++half) {
    work.segments[half] = {.source_offset = 100 * half,
                           .destination_offset = 100 * half,
                           .count = 100,
                           .first_block = half,
                           .sources = 1,
                           .destinations = 1};
  }
  gpu::StopWords cancelled{};
  cancelled.words[1].value = 1;
  work.cancelled = &cancelled;
  gpu::align(work, 1);
  const std::vector<std::byte> before(work.destinations[0], work.destinations[0] + 200);
  test::run_combine("whorl_combine_uint8_max_few", work, {.blocks = 2, .threads = 5});
  EXPECT_EQ(std::memcmp(work.destinations[0], work.sources[0], 100), 0);
  EXPECT_EQ(std::memcmp(work.destinations[0] + 100, before.data() + 100, 100), 0);
}

/// Checks the kernel of Kernels::copy(): the maximum of unsigned bytes.
TEST(Copy, MovesBytesBetweenAllAlignments) {
  std::mt19937_64 random{kSeed};
  for (const std::size_t count : {1u, 15u, 31u, 32u, 47u, 48u, 63u, 64u, 65u, 100u, 500u, 2000u}) {
    for (std::size_t from = 0; from < 16; ++from) {
      for (std::size_t to = 0; to < 16; ++to) {
        Buffers source(1, count, random);
        Buffers destinations(3, count, random);
        gpu::Work work{};
        work.sources[0] = source.at(0, from);
        for (std::size_t k = 0; k < 3; ++k) work.destinations[k] = destinations.at(k, to + 5 * k);
        work.segments[0] = {.count = count, .sources = 1, .destinations = 3};
        work.n_segments = 1;
        gpu::align(work, 1);
        test::run_combine("whorl_combine_uint8_max_few", work, {.blocks = 3, .threads = 7});
        for (std::size_t k = 0; k < 3; ++k) {
          ASSERT_EQ(std::memcmp(work.destinations[k], work.sources[0], count), 0)
              << count << " bytes from " << from << " to " << to << ", destination " << k;
          ASSERT_TRUE(destinations.edges_untouched(k, to + 5 * k));
        }
      }
    }
  }
}

/// Checks the positions of segments in a reduce-scatter and an all-gather of three ranks.
TEST(Segments, PlaceBlocksAsCollectivesDo) {
  constexpr std::size_t kRanks = 3, kCount = 21; // odd, so that blocks differ in alignment
  std::vector<std::vector<std::int32_t>> in(kRanks), out(kRanks);
  for (std::size_t r = 0; r < kRanks; ++r) {
    for (std::size_t i = 0; i < kRanks * kCount; ++i) {
      in[r].push_back(static_cast<std::int32_t>(100 * r + i));
    }
    out[r].resize(kRanks * kCount);
  }
  gpu::Work work{};
  work.n_segments = kRanks;
  for (std::size_t r = 0; r < kRanks; ++r) {
    work.sources[r] = reinterpret_cast<const std::byte*>(in[r].data());
    work.destinations[r] = reinterpret_cast<std::byte*>(out[r].data());
    work.segments[r] = {.source_offset = r * kCount * sizeof(std::int32_t),
                        .count = kCount,
                        .first_block = static_cast<std::uint32_t>(r),
                        .sources = kRanks,
                        .first_destination = static_cast<std::uint8_t>(r),
                        .destinations = 1};
  }
  gpu::align(work, sizeof(std::int32_t));
  EXPECT_EQ(gpu::max_sources(work), 3);
  test::run_combine("whorl_combine_int32_sum_many", work, {.blocks = kRanks, .threads = 8});
  for (std::size_t r = 0; r < kRanks; ++r) {
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(out[r][i], static_cast<std::int32_t>(300 + 3 * (r * kCount + i)));
      ASSERT_EQ(out[r][kCount + i], 0);
    }
  }

  for (std::size_t r = 0; r < kRanks; ++r) {
    work.segments[r] = {.destination_offset = r * kCount * sizeof(std::int32_t),
                        .count = kCount,
                        .first_block = static_cast<std::uint32_t>(r),
                        .first_source = static_cast<std::uint8_t>(r),
                        .sources = 1,
                        .destinations = kRanks};
  }
  gpu::align(work, sizeof(std::int32_t));
  test::run_combine("whorl_combine_int32_max_few", work, {.rows = kRanks, .threads = 8});
  for (std::size_t r = 0; r < kRanks; ++r) {
    for (std::size_t i = 0; i < kRanks * kCount; ++i) {
      ASSERT_EQ(out[r][i], in[i / kCount][i % kCount]);
    }
  }
}

TEST(Segments, KnowHowTheirBuffersAreAligned) {
  alignas(16) static std::byte memory[256];
  gpu::Work work{};
  work.n_segments = 1;
  work.segments[0] = {.sources = 2, .destinations = 1};
  const auto access = [&](std::size_t a, std::size_t b, std::size_t c) {
    work.sources[0] = memory + a;
    work.sources[1] = memory + b;
    work.destinations[0] = memory + c;
    gpu::align(work, 4);
    return work.segments[0].access;
  };
  EXPECT_EQ(access(0, 64, 128), gpu::Segment::Access::kVector);
  EXPECT_EQ(access(4, 68, 132), gpu::Segment::Access::kVector);
  EXPECT_EQ(access(4, 64, 132), gpu::Segment::Access::kElement);
  EXPECT_EQ(access(4, 68, 128), gpu::Segment::Access::kElement);
  EXPECT_EQ(access(2, 66, 130), gpu::Segment::Access::kByte);
}

/// Checks copies of blocks of different sizes, each by the blocks that divide() gives it.
TEST(Segments, MayDifferInSize) {
  constexpr std::size_t kCounts[] = {1, 0, 30'000, 17, 4096, 3};
  constexpr unsigned kMaxBlocks = 12;
  std::mt19937_64 random{kSeed};
  std::size_t all = 0;
  for (const std::size_t count : kCounts) all += count;
  Buffers source(1, all, random);
  for (const std::size_t shift : {0u, 5u}) {
    Buffers destination(1, all, random);
    gpu::Work work{};
    work.sources[0] = source.at(0, 0);
    work.destinations[0] = destination.at(0, shift);
    std::size_t begin = 0;
    for (const std::size_t count : kCounts) { // from the first to the last, to the opposite place
      work.segments[work.n_segments++] = {.source_offset = begin,
                                          .destination_offset = all - begin - count,
                                          .count = count,
                                          .sources = 1,
                                          .destinations = 1};
      begin += count;
    }
    gpu::align(work, 1);
    const gpu::Grid grid = gpu::divide(work, 1, kMaxBlocks);
    EXPECT_LE(grid.blocks, kMaxBlocks + std::size(kCounts));
    test::run_combine("whorl_combine_uint8_max_few", work, grid);
    for (int s = 0; s < work.n_segments; ++s) {
      const gpu::Segment& segment = work.segments[s];
      EXPECT_EQ(std::memcmp(work.destinations[0] + segment.destination_offset,
                            work.sources[0] + segment.source_offset, segment.count),
                0)
          << "segment " << s << ", shift " << shift;
    }
    EXPECT_TRUE(destination.edges_untouched(0, shift));
  }
}

TEST(Segments, HaveBlocksByTheirBytes) {
  gpu::Work work{};
  const std::uint64_t counts[] = {1, 300'000, 100'000, 0};
  for (const std::uint64_t count : counts) work.segments[work.n_segments++].count = count;
  const gpu::Grid grid = gpu::divide(work, 4, 100);
  std::vector<std::uint32_t> blocks(std::size(counts));
  for (unsigned block = 0; block < grid.blocks; ++block) {
    const gpu::Share share = gpu::share_of(work, grid, block, 0);
    EXPECT_EQ(share.index, blocks[share.segment]++) << "block " << block;
  }
  EXPECT_EQ(blocks, (std::vector<std::uint32_t>{1, 74, 24, 1}));
  EXPECT_EQ(grid.rows, 1U);
  EXPECT_EQ(grid.threads, 512U);
}

TEST(Segments, FillALaunch) {
  gpu::Work work{};
  work.n_segments = gpu::kMaxSegments;
  for (gpu::Segment& segment : work.segments) segment.count = 1;
  work.segments[0].count = 4 * 128 * 3;
  const gpu::Grid grid = gpu::divide(work, 4, 264);
  ASSERT_EQ(grid.rows, 1U);
  ASSERT_EQ(grid.blocks, unsigned{gpu::kMaxSegments} + 2);
  for (unsigned block = 0; block < grid.blocks; ++block) {
    const gpu::Share share = gpu::share_of(work, grid, block, 0);
    EXPECT_EQ(share.segment, block < 3 ? 0 : block - 2);
    EXPECT_EQ(share.index, block < 3 ? block : 0);
    EXPECT_EQ(share.blocks, block < 3 ? 3U : 1U);
  }
}

TEST(Grid, HasAThreadForEachVectorWhileThereIsRoom) {
  gpu::Work work{};
  const auto grid = [&](std::size_t elements, int segments) {
    work.n_segments = segments;
    for (gpu::Segment& segment : work.segments) segment.count = elements;
    return gpu::divide(work, 4, 264);
  };
  const auto is = [](gpu::Grid got, unsigned blocks, unsigned threads, unsigned rows = 1) {
    return got.blocks == blocks && got.threads == threads && got.rows == rows;
  };
  EXPECT_TRUE(is(grid(1, 1), 1, 128));
  EXPECT_TRUE(is(grid(4 * 128, 1), 1, 128));
  EXPECT_TRUE(is(grid(4 * 128 + 1, 1), 2, 128));
  EXPECT_TRUE(is(grid(4 * 128 * 264, 1), 264, 128));
  EXPECT_TRUE(is(grid(4 * 128 * 264 + 1, 1), 133, 256));
  EXPECT_TRUE(is(grid(4 * 512 * 264, 1), 264, 512));
  EXPECT_TRUE(is(grid(std::size_t{1} << 32, 1), 264, 512));
  EXPECT_TRUE(is(grid(4 * 512 * 66, 4), 66, 512, 4));
  EXPECT_TRUE(is(grid(std::size_t{1} << 32, 64), 4, 512, 64));
}

} // namespace
} // namespace whorl
