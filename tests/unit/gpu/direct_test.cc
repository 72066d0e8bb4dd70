// Tests of small exchanges in lines (gpu/direct.h), run without a device in two ways
// (device_kernels.h), against the reference executor, bit by bit.
#include <gtest/gtest.h>

#include <string>
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

/// Returns an algorithm that has the bits of a direct exchange: one that combines in the order of
/// the ranks, or only moves.
const Algorithm* like_direct(Collective collective, const Shape& shape) {
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective != collective || !algorithm.supports(shape)) continue;
    if (!reduces(collective) || algorithm.at_once) return &algorithm;
  }
  return nullptr;
}

void check_direct(int nranks, Case c, FifoWorld* device = nullptr) {
  c.direct = true;
  for (int collective = 0; collective < static_cast<int>(Collective::kBarrier); ++collective) {
    c.shape = shape_of(nranks, nranks - 1);
    c.algorithm = like_direct(static_cast<Collective>(collective), c.shape);
    ASSERT_NE(c.algorithm, nullptr) << name_of(static_cast<Collective>(collective));
    for (const bool in_place : {false, true}) {
      c.in_place = in_place;
      if (!in_place || has_in_place_form(c.algorithm->collective)) check(c, device);
    }
  }
}

class Direct : public ::testing::TestWithParam<int> {};

TEST_P(Direct, GivesTheBitsOfTheReference) {
  struct Size {
    std::size_t count;
    unsigned threads;
  };
  for (const auto& [count, threads] : {Size{3, 3}, Size{8, 1}, Size{1030, 16}}) {
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kUint8}) {
      check_direct(GetParam(), {.count = count,
                                .type = type,
                                .shift = count == 8 ? size_of(type) : count % 2,
                                .instances = 2,
                                .threads = threads});
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Quick, Direct, ::testing::Values(3));
INSTANTIATE_TEST_SUITE_P(Full, Direct, ::testing::Values(2, 5, 8));

TEST(Direct, EveryReduction) {
  for (int t = 0; t < kNumDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    for (const ReduceOp op : kReduceOps) {
      if (!combines(type, op)) continue;
      for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
        check_direct(3, {.count = 83, .type = type, .op = op, .shift = shift});
      }
    }
  }
}

// Checks that exchanges and schedules, which share the counts of messages, follow each other.
TEST(Direct, FollowsItselfAndSchedules) {
  constexpr std::uint32_t kChannels = 16;
  for (const unsigned threads : {1U, 3U}) {
    FifoWorld device(4, kChannels, 2, 4096);
    for (int round = 0; round < 3; ++round) {
      check_direct(4, {.count = 700, .slot_bytes = 4096, .instances = 4, .threads = threads},
                   &device);
      for (const char* const name : {"oneshot", "ring"}) {
        check({.algorithm = find_algorithm(Collective::kAllReduce, name),
               .shape = shape_of(4),
               .count = 9000,
               .slot_bytes = 4096,
               .instances = kChannels,
               .threads = threads},
              &device);
      }
    }
  }
}

// Checks a root that only sends: receivers tell it when its lines may be written again.
TEST(Direct, ARootIsToldWhichLinesAreFree) {
  FifoWorld device(3, 1, 2, 256);
  for (int round = 0; round < 9; ++round) {
    const Shape shape = shape_of(3, round % 2);
    check({.algorithm = like_direct(Collective::kBroadcast, shape),
           .shape = shape,
           .count = 100 + static_cast<std::size_t>(round),
           .direct = true},
          &device);
  }
}

// Checks a block of many threads, most of which look at the stop words seldom.
TEST(Direct, LeavesSoonWhenItIsStopped) {
  const Case c{.algorithm = like_direct(Collective::kAllReduce, shape_of(2)),
               .shape = shape_of(2),
               .count = 1000,
               .threads = 5,
               .direct = true};
  const std::vector<Schedule> schedules = build_all(*c.algorithm, c.shape);
  const auto map = ChunkMap::make(schedules[0], c.count, 4, c.slot_bytes);
  ASSERT_TRUE(map.ok());
  for (const bool stops_first : {false, true}) {
    FifoWorld device(2, 1, 2, 256);
    World world(c);
    device.stop.set();
    device.stops_first = stops_first;
    run(device, c, *map, schedules, world, 1);
    EXPECT_EQ(device.report(0).state, stops_first ? 0U : 1U);
    EXPECT_EQ(device.report(0).expired, 0U);
    EXPECT_EQ(device.line(1, 0).number, stops_first ? 0U : 1U) << "nothing is written after a stop";
  }
}

// Checks that a root that is ahead of a receiver by two messages waits for it.
TEST(Direct, ARootWaitsForAReceiverThatIsBehind) {
  const Shape shape = shape_of(2);
  const Case c{.algorithm = like_direct(Collective::kBroadcast, shape),
               .shape = shape,
               .count = 100,
               .direct = true};
  const std::vector<Schedule> schedules = build_all(*c.algorithm, c.shape);
  const auto map = ChunkMap::make(schedules[0], c.count, 4, c.slot_bytes);
  ASSERT_TRUE(map.ok());
  FifoWorld device(2, 1, 2, 256);
  device.timeout_ns = 20'000'000;
  World world(c);
  for (int message = 0; message < 3; ++message) {
    EXPECT_EQ(device.report(0).state, 0U);
    run(device, c, *map, schedules, world, 1);
  }
  EXPECT_EQ(device.report(0).state, 1U);
  EXPECT_EQ(device.report(0).peer, 1U);
  EXPECT_EQ(device.report(0).phase, static_cast<std::uint32_t>(gpu::WaitPhase::kSending));
}

TEST(Direct, GivesUpInTimeAndSaysForWhomItWaited) {
  const Case c{.algorithm = like_direct(Collective::kAllGather, shape_of(3)),
               .shape = shape_of(3),
               .count = 1000,
               .threads = 2,
               .direct = true};
  const std::vector<Schedule> schedules = build_all(*c.algorithm, c.shape);
  const auto map = ChunkMap::make(schedules[0], c.count, 4, c.slot_bytes);
  ASSERT_TRUE(map.ok());
  FifoWorld device(3, 1, 2, 256);
  device.timeout_ns = 20'000'000;
  World world(c);
  run(device, c, *map, schedules, world, 1);
  EXPECT_TRUE(device.stop.is_set());
  EXPECT_EQ(device.report(2).state, 1U);
  EXPECT_EQ(device.report(2).peer, 1U);
  EXPECT_EQ(device.report(2).phase, static_cast<std::uint32_t>(gpu::WaitPhase::kReceiving));
}

} // namespace
} // namespace whorl
