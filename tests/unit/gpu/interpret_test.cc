// Tests of the interpreter of schedules, run without a device in two ways (device_kernels.h),
// against the reference executor on the same schedules and windows, bit by bit.
#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "tests/unit/gpu/interpreter_case.h"

namespace whorl {
namespace {

using test::Case;
using test::check;
using test::FifoWorld;
using test::run;
using test::shape_of;
using test::World;

bool runs_on_devices(const Algorithm& algorithm) {
  return algorithm.collective < Collective::kBarrier;
}

class Ranks : public ::testing::TestWithParam<int> {};

TEST_P(Ranks, EveryAlgorithmGivesTheBitsOfTheReference) {
  for (const Algorithm& algorithm : all_algorithms()) {
    Shape shape = shape_of(GetParam());
    if (!runs_on_devices(algorithm) || !algorithm.supports(shape)) continue;
    const std::size_t per_slot = 256 / 4;
    for (const std::size_t count : {std::size_t{1}, std::size_t{7}, 3 * per_slot + 5}) {
      shape.root = count == 1 ? 0 : GetParam() - 1;
      for (const bool in_place : {false, true}) {
        if (in_place && !has_in_place_form(algorithm.collective)) continue;
        check({.algorithm = &algorithm,
               .shape = shape,
               .count = count,
               .type = count == 7 ? DataType::kBfloat16 : DataType::kFloat32,
               .in_place = in_place,
               .instances = count == 1 ? 1U : 2U});
      }
    }
  }
}

TEST_P(Ranks, HierarchiesAndSeveralLanesToo) {
  for (const Algorithm& algorithm : all_algorithms()) {
    Shape shape = shape_of(GetParam(), 0, 2);
    if (GetParam() % 2 == 0 && GetParam() > 2) {
      shape.dims = {{.size = 2, .algorithm = {}}, {.size = GetParam() / 2, .algorithm = {}}};
    }
    if (!runs_on_devices(algorithm) || !algorithm.supports(shape)) continue;
    check({.algorithm = &algorithm,
           .shape = shape,
           .count = 333,
           .type = DataType::kInt16,
           .threads = GetParam() < 5 ? 3U : 1U});
  }
}
INSTANTIATE_TEST_SUITE_P(Quick, Ranks, ::testing::Range(2, 5));
INSTANTIATE_TEST_SUITE_P(Full, Ranks, ::testing::Range(5, 9));

void run_every_reduction(std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    const Algorithm* const algorithm = find_algorithm(Collective::kAllReduce, name);
    for (int t = 0; t < kNumDataTypes; ++t) {
      const auto type = static_cast<DataType>(t);
      for (const ReduceOp op : kReduceOps) {
        if (!combines(type, op)) continue;
        for (const std::size_t shift : {std::size_t{0}, size_of(type), std::size_t{1}}) {
          check({.algorithm = algorithm,
                 .shape = shape_of(3),
                 .count = 451,
                 .type = type,
                 .op = op,
                 .in_place = shift != 0,
                 .shift = shift});
        }
      }
    }
  }
}

TEST(Interpreter, EveryReduction) { run_every_reduction({"ring"}); }
TEST(InterpreterFull, EveryReduction) { run_every_reduction({"oneshot"}); }

void run_with_threads(unsigned threads) {
  for (const Algorithm& algorithm : all_algorithms()) {
    const Shape shape = shape_of(4, 1);
    if (!runs_on_devices(algorithm) || !algorithm.supports(shape)) continue;
    check({.algorithm = &algorithm,
           .shape = shape,
           .count = 300,
           .in_place = has_in_place_form(algorithm.collective),
           .slot_bytes = 512,
           .threads = threads});
  }
}
TEST(Interpreter, ThreadsOfABlockWorkTogether) { run_with_threads(2); }
TEST(InterpreterFull, ThreadsOfABlockWorkTogether) { run_with_threads(5); }

TEST(Interpreter, WideFansAndSlotsOfEverySize) {
  for (const int nranks : {5, 12}) {
    for (const char* const name : {"oneshot", "twoshot"}) {
      const Algorithm* const algorithm = find_algorithm(Collective::kAllReduce, name);
      for (const std::uint32_t slot_bytes : {128U, 512U, 4096U}) {
        for (const std::uint32_t slots : {2U, 4U}) {
          check({.algorithm = algorithm,
                 .shape = shape_of(nranks),
                 .count = 1003,
                 .type = DataType::kFloat16,
                 .slots = slots,
                 .slot_bytes = slot_bytes});
        }
      }
    }
  }
}

// Checks successive launches: the regions keep the counts of messages, and of launches where lanes
// wait for each other; a launch that a graph repeats is one more.
TEST(Interpreter, LaunchesFollowEachOther) {
  constexpr std::uint32_t kChannels = 16;
  FifoWorld device(4, kChannels, 4, 256);
  for (int round = 0; round < 3; ++round) {
    for (const Algorithm& algorithm : all_algorithms()) {
      const Shape shape = shape_of(4, round, 2);
      if (!runs_on_devices(algorithm) || !algorithm.supports(shape)) continue;
      const std::uint32_t channels = device_lanes(build_all(algorithm, shape)).channels;
      ASSERT_LE(channels, kChannels);
      check({.algorithm = &algorithm,
             .shape = shape,
             .count = 500,
             .slots = 4,
             .instances = kChannels / channels},
            &device);
    }
  }
}

/// Builds a broadcast along a chain, in which a lane sends what another lane has copied or
/// received. No registered algorithm has lanes that wait for each other.
Schedule build_chain(const Shape& shape, int rank) {
  ScheduleBuilder builder(shape.nranks, rank, 1);
  builder.blocks(rank == 0 ? 1 : 0, 1);
  LaneBuilder& own = builder.lane(rank % 2);
  if (rank == 0) {
    own.copy(0, 0);
  } else {
    own.peers(rank - 1, rank - 1).recv_copy(0);
  }
  if (rank + 1 < shape.nranks) {
    LaneBuilder& next = builder.lane((rank + 1) % 2);
    next.peers(rank + 1, rank + 1).read(Buffer::kOutput).wait(0, 0).send(0);
  }
  return std::move(builder).build();
}

TEST(Interpreter, LanesWaitForEachOther) {
  const Algorithm chain{
      .name = "chain", .collective = Collective::kBroadcast, .build_several = build_chain};
  for (const int nranks : {3, 4}) {
    for (const std::uint32_t instances : {1U, 3U}) {
      FifoWorld device(nranks, 2 * instances, 2, 256);
      for (int launch = 0; launch < 4; ++launch) {
        check({.algorithm = &chain,
               .shape = shape_of(nranks),
               .count = 500 + static_cast<std::size_t>(launch),
               .instances = instances,
               .threads = 3},
              &device);
      }
    }
  }
}

TEST(Interpreter, GivesUpInTimeAndSaysForWhomItWaited) {
  const Case c{.algorithm = find_algorithm(Collective::kAllReduce, "ring"),
               .shape = shape_of(3),
               .count = 1000};
  const std::vector<Schedule> schedules = build_all(*c.algorithm, c.shape);
  const auto map = ChunkMap::make(schedules[0], c.count, 4, c.slot_bytes);
  ASSERT_TRUE(map.ok());
  FifoWorld device(3, 1, 2, 256);
  device.timeout_ns = 20'000'000;
  World world(c);
  run(device, c, *map, schedules, world, 1);
  EXPECT_TRUE(device.stop.is_set());
  for (const gpu::StopWords::Word& word : device.stop.words) EXPECT_EQ(word.value, 1U);
  EXPECT_EQ(device.report(1).state, 0U);
  EXPECT_EQ(device.report(2).state, 1U);
  EXPECT_EQ(device.report(2).peer, 1U);
  EXPECT_EQ(device.report(2).phase, static_cast<std::uint32_t>(gpu::WaitPhase::kReceiving));
  EXPECT_EQ(device.report(0).state, 1U);
  EXPECT_TRUE(device.report(0).expired == 1 || device.report(2).expired == 1);
}

TEST(Interpreter, LeavesWhenItIsStopped) {
  const Case c{.algorithm = find_algorithm(Collective::kAllReduce, "twoshot"),
               .shape = shape_of(2),
               .count = 1000};
  const std::vector<Schedule> schedules = build_all(*c.algorithm, c.shape);
  const auto map = ChunkMap::make(schedules[0], c.count, 4, c.slot_bytes);
  ASSERT_TRUE(map.ok());
  FifoWorld device(2, 1, 2, 256);
  World world(c);
  device.stop.set();
  run(device, c, *map, schedules, world, 1);
  EXPECT_EQ(device.report(0).state, 1U);
  EXPECT_EQ(device.report(0).expired, 0U);
}

// Checks a root that has a slot for every message, and so waits for no rank.
TEST(Interpreter, LeavesWhenItIsStoppedAlsoWithoutAWait) {
  constexpr std::uint32_t kMessages = 16'384; // a power of two
  for (const unsigned threads : {1U, 3U}) {
    const Case c{.algorithm = find_algorithm(Collective::kBroadcast, "tree"),
                 .shape = shape_of(2),
                 .count = kMessages,
                 .slots = kMessages,
                 .slot_bytes = 4,
                 .threads = threads};
    const std::vector<Schedule> schedules = build_all(*c.algorithm, c.shape);
    const auto map = ChunkMap::make(schedules[0], c.count, 4, c.slot_bytes);
    ASSERT_TRUE(map.ok());
    ASSERT_GT(map->windows, 1000U);
    FifoWorld device(2, 1, c.slots, 128);
    World world(c);
    device.stop.set();
    run(device, c, *map, schedules, world, 1);
    EXPECT_LE(device.messages(0, 1), 300U);
    EXPECT_EQ(device.report(0).state, 0U); // rank 0 waits for no rank
  }
}

} // namespace
} // namespace whorl
