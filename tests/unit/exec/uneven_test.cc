// Tests of schedules over blocks of different sizes, against the expected elements.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "algorithms/algorithm.h"
#include "exec/execution.h"
#include "tests/support/queue_endpoint.h"

namespace whorl {
namespace {

using Values = std::vector<std::int64_t>;
constexpr std::int64_t kGuard = -77;

struct Table {
  std::vector<ChunkMap::Block> blocks;
  std::size_t size = 0, largest = 0; ///< sizes: all blocks with gaps, one block
};

/// Makes empty, small and large blocks in ascending order, with `gap` elements before each.
Table random_table(int nranks, unsigned seed, std::size_t gap) {
  std::mt19937 random(seed);
  Table table;
  for (int rank = 0; rank < nranks; ++rank) {
    const std::size_t kind = random() % 4;
    const std::size_t count = kind == 0 ? 0 : kind == 1 ? 1 + random() % 5 : random() % 3000;
    table.blocks.push_back({table.size + gap, count});
    table.size += gap + count;
    table.largest = std::max(table.largest, count);
  }
  return table;
}

std::int64_t element(std::size_t rank, std::size_t index) {
  return static_cast<std::int64_t>((rank + 1) * 1'000'003 + index * 7919);
}

struct World {
  std::vector<Values> in, out, expected;
};

World make_world(Collective collective, const Table& table) {
  const std::size_t n = table.blocks.size();
  World world;
  for (std::size_t rank = 0; rank < n; ++rank) {
    const ChunkMap::Block& own = table.blocks[rank];
    const bool gathers = collective == Collective::kAllGather;
    Values in(gathers ? own.count : table.size, kGuard);
    Values out(gathers ? table.size : own.count, kGuard);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = element(rank, i);
    Values expected = out;
    for (std::size_t r = 0; r < n && gathers; ++r) {
      for (std::size_t i = 0; i < table.blocks[r].count; ++i) {
        expected[table.blocks[r].begin + i] = element(r, i);
      }
    }
    for (std::size_t i = 0; i < own.count && !gathers; ++i) {
      expected[i] = 0;
      for (std::size_t r = 0; r < n; ++r) expected[i] += element(r, own.begin + i);
    }
    world.in.push_back(std::move(in));
    world.out.push_back(std::move(out));
    world.expected.push_back(std::move(expected));
  }
  return world;
}

void run(const Algorithm& algorithm, const Shape& shape, const Table& table, bool publishes) {
  SCOPED_TRACE(::testing::Message() << name_of(algorithm.collective) << " " << algorithm.name
                                    << " n=" << shape.nranks << " channels=" << shape.channels);
  constexpr std::size_t kSlotBytes = 2048; // small, for many windows
  const bool gathers = algorithm.collective == Collective::kAllGather;
  const std::vector<Schedule> schedules = build_all(algorithm, shape);
  const auto made = ChunkMap::make(schedules[0], table.largest, sizeof kGuard, kSlotBytes);
  ASSERT_TRUE(made.ok()) << made.status().message();
  World world = make_world(algorithm.collective, table);
  test::QueueFabric fabric(4, kSlotBytes, publishes, false);
  std::vector<Execution> executions(schedules.size());
  for (std::size_t rank = 0; rank < executions.size(); ++rank) {
    ASSERT_TRUE(schedules[rank].scratch.empty());
    Binding binding{
        .schedule = &schedules[rank],
        .map = *made,
        .kernels = {.reduce = reduce_kernel(DataType::kInt64, ReduceOp::kSum, Simd::kScalar),
                    .nontemporal_copy = nontemporal_copy(default_simd()),
                    .element_size = sizeof kGuard},
        .input = reinterpret_cast<const std::byte*>(world.in[rank].data()),
        .output = reinterpret_cast<std::byte*>(world.out[rank].data()),
        .fingerprint = {.sequence = 1}};
    binding.map.blocks = table.blocks.data();
    binding.map.blocks_in = gathers ? Buffer::kOutput : Buffer::kInput;
    binding.map.own = static_cast<std::uint32_t>(rank);
    auto view = fabric.view(static_cast<int>(rank));
    executions[rank].start(binding, view);
  }
  const std::vector<bool> done = test::run_in_turn(executions);
  for (std::size_t rank = 0; rank < executions.size(); ++rank) {
    ASSERT_TRUE(done[rank]) << "rank " << rank << " hangs";
    EXPECT_TRUE(world.out[rank] == world.expected[rank]) << "rank " << rank;
  }
  EXPECT_TRUE(fabric.empty());
}

TEST(Uneven, EveryAlgorithmWithoutScratch) {
  for (const Collective collective : {Collective::kReduceScatter, Collective::kAllGather}) {
    for (const char* const name : {"direct", "ring"}) {
      const Algorithm& algorithm = *find_algorithm(collective, name);
      for (const int n : {1, 2, 3, 5, 8}) {
        for (unsigned seed = 1; seed <= 8; ++seed) {
          const Shape shape{.nranks = n, .channels = 1 + static_cast<int>(seed % 3)};
          if (!algorithm.supports(shape)) continue;
          run(algorithm, shape, random_table(n, seed, seed % 2 * 3), seed % 4 < 2);
          if (HasFailure()) return;
        }
      }
    }
  }
}

} // namespace
} // namespace whorl
