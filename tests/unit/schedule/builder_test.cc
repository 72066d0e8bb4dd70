#include "schedule/builder.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace whorl {
namespace {

/// Returns what an executor does with each step, one line per message: ops, source, target and peer
/// ranks.
std::vector<std::string> trace(const Schedule& schedule, const Lane& lane) {
  std::vector<std::string> lines;
  const auto place = [&](Buffer buffer, int first, const Step& step, int i) {
    return std::string(1, "ios"[static_cast<int>(buffer)]) +
           std::to_string(chunk_at(static_cast<std::uint16_t>(first), step.stride, i,
                                   schedule.chunks(buffer)));
  };
  for (const Step& step : lane.steps) {
    for (int i = 0; i < step.repeat; ++i) {
      std::string line;
      for (int p = 0; p < step.fan_in(); ++p) {
        line += "<" + std::to_string(lane.peers.at(static_cast<std::size_t>(step.rx + p))) + " ";
      }
      if (step.reads_src()) line += place(step.src, step.chunk, step, i) + " ";
      if (step.writes_dst()) line += "=" + place(step.dst, step.dst_chunk, step, i) + " ";
      line += "x" + std::to_string(step.count);
      for (int p = 0; p < step.fan_out(); ++p) {
        line += " >" + std::to_string(lane.peers.at(static_cast<std::size_t>(step.tx + p)));
      }
      lines.push_back(line);
    }
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST(Builder, RingIsFiveStepsForAnyRankCount) {
  for (const int n : {3, 4, 64, 1000}) {
    ScheduleBuilder builder(n, 1, n);
    builder.lane(0)
        .peers(2, 0)
        .send(1)
        .recv_reduce_send(0)
        .repeat(n - 2, -1)
        .recv_reduce_copy_send(2, 2)
        .final()
        .recv_copy_send(1)
        .repeat(n - 2, -1)
        .recv_copy(3);
    const Schedule schedule = std::move(builder).build();
    ASSERT_EQ(schedule.lanes.size(), 1u);
    EXPECT_EQ(schedule.lanes[0].steps.size(), 5u) << n;
    EXPECT_EQ(schedule.lanes[0].peers, (std::vector<std::uint32_t>{2, 0}));
    EXPECT_EQ(schedule.message_chunks, 1);
    EXPECT_TRUE(schedule.lanes[0].steps[2].final());
  }
}

TEST(Builder, IndicesAreTakenModuloTheBuffer) {
  ScheduleBuilder builder(4, 0, 4);
  builder.lane(0).peers(1, 3).send(-1).recv_copy(6).repeat(4, -1);
  const Schedule schedule = std::move(builder).build();
  EXPECT_EQ(schedule.lanes[0].steps.size(), 2u);
  EXPECT_EQ(trace(schedule, schedule.lanes[0]),
            (Lines{"i3 x1 >1", "<3 =o2 x1", "<3 =o1 x1", "<3 =o0 x1", "<3 =o3 x1"}));
}

TEST(Builder, RepeatIsSplitWhereItWrapsInsideARange) {
  ScheduleBuilder builder(4, 0, 8);
  builder.lane(0).peers(1, 3).range({.base = 4, .size = 4}).recv_copy(1).repeat(4, -1);
  const Schedule schedule = std::move(builder).build();
  EXPECT_EQ(schedule.lanes[0].steps.size(), 2u);
  EXPECT_EQ(trace(schedule, schedule.lanes[0]),
            (Lines{"<3 =o5 x1", "<3 =o4 x1", "<3 =o7 x1", "<3 =o6 x1"}));
}

TEST(Builder, ScaleMultipliesIndicesCountsAndStrides) {
  ScheduleBuilder builder(4, 0, 8);
  builder.lane(0).peers(1, 3).range({.scale = 2}).send(3).repeat(3, 1);
  const Schedule schedule = std::move(builder).build();
  EXPECT_EQ(schedule.lanes[0].steps.size(), 1u); // the circle is the whole buffer
  EXPECT_EQ(trace(schedule, schedule.lanes[0]), (Lines{"i6 x2 >1", "i0 x2 >1", "i2 x2 >1"}));
  EXPECT_EQ(schedule.message_chunks, 2);
}

TEST(Builder, CountIsSplitWhereItWraps) {
  ScheduleBuilder builder(4, 0, 4);
  const int first = builder.scratch({2, 3, 0, 1});
  builder.lane(0).peers(1, 3).write(Buffer::kScratch).recv_reduce_copy(2, first).count(3);
  const Schedule schedule = std::move(builder).build();
  EXPECT_EQ(trace(schedule, schedule.lanes[0]), (Lines{"<3 i2 =s0 x2", "<3 i0 =s2 x1"}));
  EXPECT_EQ(schedule.message_chunks, 2);
}

TEST(Builder, ScratchIsAbsolute) {
  ScheduleBuilder builder(2, 0, 4);
  EXPECT_EQ(builder.scratch({0, 1}), 0);
  EXPECT_EQ(builder.scratch({2, 3}), 2);
  builder.lane(0)
      .peers(1, 1)
      .range({.base = 2, .size = 2})
      .write(Buffer::kScratch)
      .recv_copy(2)
      .repeat(2, 1);
  const Schedule schedule = std::move(builder).build();
  EXPECT_EQ(trace(schedule, schedule.lanes[0]), (Lines{"<1 =s2 x1", "<1 =s3 x1"}));
}

TEST(Builder, FanPartnersAreConsecutiveAndShared) {
  ScheduleBuilder builder(6, 3, 1);
  const std::vector<int> down{5, 1, 4};
  auto& lane = builder.lane(7);
  lane.peers(4, 1).send(0).recv_copy(0);
  lane.peers(std::span<const int>(), down).recv_reduce_copy(0, 0);
  lane.peers(down, std::vector<int>{0}).recv_copy_send(0);
  const Schedule schedule = std::move(builder).build();
  EXPECT_EQ(schedule.lanes[0].channel, 7);
  EXPECT_EQ(schedule.lanes[0].peers, (std::vector<std::uint32_t>{1, 4, 5, 0}));
  EXPECT_EQ(trace(schedule, schedule.lanes[0]),
            (Lines{"i0 x1 >4", "<1 =o0 x1", "<1 <4 <5 i0 =o0 x1", "<0 =o0 x1 >1 >4 >5"}));
}

TEST(Builder, RemovedStepsLeaveNoTrace) {
  ScheduleBuilder builder(2, 0, 2);
  builder.lane(0).peers(-1, 9).send(0).repeat(0, 1);
  builder.lane(1).peers(1, 1).send(0).repeat(0, 1).send(1);
  const Schedule schedule = std::move(builder).build();
  ASSERT_EQ(schedule.lanes.size(), 1u);
  EXPECT_EQ(schedule.lanes[0].channel, 1);
  EXPECT_EQ(trace(schedule, schedule.lanes[0]), (Lines{"i1 x1 >1"}));
}

TEST(Builder, WaitsFindTheStepsInTheSchedule) {
  ScheduleBuilder builder(2, 0, 4);
  builder.lane(0).peers(1, 1).send(0).repeat(0, 1);
  builder.lane(1).peers(1, 1).range({.base = 1, .size = 3}).recv_copy(1).repeat(3, 1).send(0);
  builder.lane(2).peers(1, 1).wait(0, 0).wait(1, 0).send(0);
  const Schedule schedule = std::move(builder).build();
  ASSERT_EQ(schedule.lanes.size(), 2u);
  ASSERT_EQ(schedule.lanes[1].steps.size(), 2u); // the wait for the empty lane is gone
  const Step& wait = schedule.lanes[1].steps[0];
  EXPECT_TRUE(wait.waits());
  EXPECT_EQ(wait.tx, 0);
  EXPECT_EQ(wait.rx, 1); // the repeated step became two
}

TEST(Builder, BlocksSetTheBufferSizes) {
  ScheduleBuilder builder(3, 1, 2);
  builder.blocks(1, 3).message_chunks(2);
  builder.lane(0).peers(2, 0).copy(0, 2).repeat(2, 1).read(Buffer::kOutput).send(-2).count(2);
  const Schedule schedule = std::move(builder).build();
  EXPECT_EQ(schedule.input_chunks, 2);
  EXPECT_EQ(schedule.output_chunks, 6);
  EXPECT_EQ(schedule.message_chunks, 2);
  EXPECT_EQ(trace(schedule, schedule.lanes[0]), (Lines{"i0 =o2 x1", "i1 =o3 x1", "o4 x2 >2"}));
}

using BuilderDeathTest = ::testing::Test;

TEST(BuilderDeathTest, WhatCannotBeEncodedAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto build = [](auto&& fill) {
    ScheduleBuilder builder(4, 0, 4);
    fill(builder);
    (void)std::move(builder).build();
  };
  EXPECT_DEATH(build([](ScheduleBuilder& b) { b.lane(0).peers(4, 0).send(0); }), "with rank 4");
  EXPECT_DEATH(build([](ScheduleBuilder& b) { b.lane(0).peers(1, 0).recv_copy(0); }),
               "with rank 0");
  EXPECT_DEATH(build([](ScheduleBuilder& b) { b.lane(0).send(0); }), "send to 0 ranks");
  EXPECT_DEATH(
      build([](ScheduleBuilder& b) { b.lane(0).peers(1, 1).read(Buffer::kScratch).send(0); }),
      "no scratch chunk 0");
  EXPECT_DEATH(build([](ScheduleBuilder& b) {
                 b.lane(0).peers(1, 1).range({.base = 2, .size = 3}).send(0);
               }),
               "lies outside");
  EXPECT_DEATH(
      build([](ScheduleBuilder& b) { b.message_chunks(1).lane(0).peers(1, 1).send(0).count(2); }),
      "moves 2 chunks at once");
  EXPECT_DEATH(build([](ScheduleBuilder& b) { b.lane(0).wait(1, 0); }), "does not exist");
}

} // namespace
} // namespace whorl
