// Tests of the choice of who carries out a collective on device memory, by what its ranks have
// posted.
#include "device/common/path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/kernel/blocks.h"
#include "tests/support/thread_world.h"

namespace whorl {
namespace {

using ::testing::HasSubstr;

DevicePlace place(std::uint64_t process, int device, std::uint64_t context) {
  return {.process = process, .device = {std::byte(device)}, .context = context};
}

TEST(DeviceLayout, OneDeviceNeedsOneContextInEachProcess) {
  EXPECT_EQ(layout_of(std::vector{place(1, 0, 7)}), DeviceLayout::kOneDevice);
  EXPECT_EQ(layout_of(std::vector{place(1, 0, 7), place(1, 0, 7)}), DeviceLayout::kOneDevice);
  EXPECT_EQ(layout_of(std::vector{place(1, 0, 7), place(2, 0, 8)}), DeviceLayout::kOneDevice);
  EXPECT_EQ(layout_of(std::vector{place(1, 0, 7), place(2, 0, 7)}), DeviceLayout::kOneDevice);
  EXPECT_EQ(layout_of(std::vector{place(1, 0, 7), place(2, 0, 7), place(1, 0, 8)}),
            DeviceLayout::kOtherwise);
}

TEST(DeviceLayout, OwnDevicesAreAllDifferent) {
  EXPECT_EQ(layout_of(std::vector{place(1, 0, 7), place(2, 1, 7)}), DeviceLayout::kOwnDevices);
  EXPECT_EQ(layout_of(std::vector{place(1, 0, 7), place(1, 1, 8)}), DeviceLayout::kOwnDevices);
  EXPECT_EQ(layout_of(std::vector{place(1, 0, 7), place(2, 1, 7), place(3, 0, 7)}),
            DeviceLayout::kOtherwise);
}

/// Ranks of one process on one device.
constexpr DeviceFacts kThreads{.on_device = true,
                               .shared = true,
                               .one_process = true,
                               .schedules = true,
                               .layout = DeviceLayout::kOneDevice};

DevicePath with(DeviceFacts facts, DeviceAlgo algo) {
  facts.algo = algo;
  return choose_device_path(facts);
}

TEST(DevicePath, TheHostHelpsWhereARankHasItsBuffersThere) {
  DeviceFacts facts = kThreads;
  facts.on_device = false;
  for (const bool barrier : {false, true}) {
    facts.barrier = barrier;
    for (const auto algo : {DeviceAlgo::kAny, DeviceAlgo::kFused, DeviceAlgo::kSchedule}) {
      EXPECT_EQ(with(facts, algo), DevicePath::kHost);
    }
  }
}

TEST(DevicePath, OneProcessOnOneDevice) {
  EXPECT_EQ(with(kThreads, DeviceAlgo::kAny), DevicePath::kFused);
  EXPECT_EQ(with(kThreads, DeviceAlgo::kFused), DevicePath::kFused);
  EXPECT_EQ(with(kThreads, DeviceAlgo::kSchedule), DevicePath::kSchedule);
  EXPECT_EQ(with(kThreads, DeviceAlgo::kHost), DevicePath::kHost);
  DeviceFacts many = kThreads; // too many ranks for schedules
  many.schedules = false;
  EXPECT_EQ(with(many, DeviceAlgo::kSchedule), DevicePath::kFused);
}

TEST(DevicePath, OneProcessOnSeveralDevices) {
  for (const auto layout : {DeviceLayout::kOwnDevices, DeviceLayout::kOtherwise}) {
    DeviceFacts facts = kThreads;
    facts.layout = layout;
    EXPECT_EQ(with(facts, DeviceAlgo::kAny), DevicePath::kSchedule);
    EXPECT_EQ(with(facts, DeviceAlgo::kSchedule), DevicePath::kSchedule);
    EXPECT_EQ(with(facts, DeviceAlgo::kFused), DevicePath::kHost);
    EXPECT_EQ(with(facts, DeviceAlgo::kHost), DevicePath::kHost);
    facts.schedules = false;
    EXPECT_EQ(with(facts, DeviceAlgo::kAny), DevicePath::kHost);
  }
}

TEST(DevicePath, ProcessesOnOneDevice) {
  DeviceFacts facts = kThreads;
  facts.one_process = false;
  EXPECT_EQ(with(facts, DeviceAlgo::kAny), DevicePath::kFused);
  // Kernels of several processes that wait for each other would take turns there.
  EXPECT_EQ(with(facts, DeviceAlgo::kSchedule), DevicePath::kFused);
  facts.shared = false; // a rank's memory cannot be mapped by the others
  EXPECT_EQ(with(facts, DeviceAlgo::kAny), DevicePath::kHost);
  EXPECT_EQ(with(facts, DeviceAlgo::kSchedule), DevicePath::kHost);
}

TEST(DevicePath, ProcessesOnOneDeviceThroughMps) {
  DeviceFacts facts = kThreads;
  facts.one_process = false;
  facts.together = true;
  EXPECT_EQ(with(facts, DeviceAlgo::kAny), DevicePath::kFused);
  EXPECT_EQ(with(facts, DeviceAlgo::kSchedule), DevicePath::kSchedule);
  facts.shared = false; // only its own rank touches a buffer
  EXPECT_EQ(with(facts, DeviceAlgo::kAny), DevicePath::kSchedule);
  EXPECT_EQ(with(facts, DeviceAlgo::kFused), DevicePath::kHost);
  facts.layout = DeviceLayout::kOtherwise;
  EXPECT_EQ(with(facts, DeviceAlgo::kAny), DevicePath::kHost);
}

TEST(DevicePath, ProcessesOnDevicesOfTheirOwn) {
  DeviceFacts facts = kThreads;
  facts.one_process = false;
  facts.layout = DeviceLayout::kOwnDevices;
  for (const bool shared : {false, true}) { // only its own rank touches a buffer
    facts.shared = shared;
    EXPECT_EQ(with(facts, DeviceAlgo::kAny), DevicePath::kSchedule);
    EXPECT_EQ(with(facts, DeviceAlgo::kFused), DevicePath::kHost);
  }
  facts.schedules = false;
  EXPECT_EQ(with(facts, DeviceAlgo::kAny), DevicePath::kHost);
  facts.schedules = true;
  facts.layout = DeviceLayout::kOtherwise; // two share a device, a third has another one
  EXPECT_EQ(with(facts, DeviceAlgo::kAny), DevicePath::kHost);
}

TEST(DevicePath, ABarrierNeedsNoMemory) {
  DeviceFacts facts = kThreads;
  facts.barrier = true;
  facts.one_process = facts.shared = facts.schedules = false;
  facts.layout = DeviceLayout::kOtherwise;
  EXPECT_EQ(with(facts, DeviceAlgo::kAny), DevicePath::kBarrier);
  EXPECT_EQ(with(facts, DeviceAlgo::kFused), DevicePath::kBarrier);
  EXPECT_EQ(with(facts, DeviceAlgo::kHost), DevicePath::kHost);
}

TEST(DeviceCapture, ByPath) {
  const std::vector<std::string> names{"rank 0", "rank 1", "rank 2"};
  std::vector<DeviceCapture> ranks{{.process = 1, .graph = 5},
                                   {.process = 2, .graph = 5}, // another process's number
                                   {.process = 1, .graph = 6}};
  EXPECT_THAT(why_not_captured(DevicePath::kHost, true, ranks, names), HasSubstr("the host"));
  EXPECT_THAT(why_not_captured(DevicePath::kSchedule, false, ranks, names), HasSubstr("the first"));
  EXPECT_EQ(why_not_captured(DevicePath::kSchedule, true, ranks, names), "");
  for (const auto path : {DevicePath::kFused, DevicePath::kBarrier}) {
    EXPECT_EQ(why_not_captured(path, false, ranks, names), "");
  }
  ranks[2].graph = 5;
  EXPECT_THAT(why_not_captured(DevicePath::kFused, false, ranks, names),
              HasSubstr("rank 0 and rank 2 do so into the same graph"));
  ranks[0].graph = ranks[2].graph = 0; // nobody knows
  EXPECT_EQ(why_not_captured(DevicePath::kFused, false, ranks, names), "");
  ranks[1].possible = false;
  EXPECT_THAT(why_not_captured(DevicePath::kBarrier, false, ranks, names),
              HasSubstr("the driver of rank 1 cannot"));
  EXPECT_EQ(why_not_captured(DevicePath::kSchedule, true, ranks, names), ""); // by a kernel
}

TEST(DeviceAlgo, HasFourNames) {
  const auto named = [](const char* name) {
    const test::ScopedEnv env{{"WHORL_DEVICE_ALGO", name}};
    return device_algo();
  };
  EXPECT_EQ(*named(""), DeviceAlgo::kAny);
  EXPECT_EQ(*named("fused"), DeviceAlgo::kFused);
  EXPECT_EQ(*named("schedule"), DeviceAlgo::kSchedule);
  EXPECT_EQ(*named("host"), DeviceAlgo::kHost);
  EXPECT_THAT(named("fast").status().message(), HasSubstr("WHORL_DEVICE_ALGO=\"fast\" is none of"));
}

TEST(DevicePath, SumsOfBlocksThatDifferNeedOneDevice) {
  DeviceFacts facts = kThreads;
  facts.uneven_sums = true;
  for (const bool one_process : {true, false}) {
    facts.one_process = one_process;
    for (const DeviceAlgo algo : {DeviceAlgo::kAny, DeviceAlgo::kFused, DeviceAlgo::kSchedule}) {
      facts.layout = DeviceLayout::kOneDevice;
      EXPECT_EQ(with(facts, algo), DevicePath::kFused);
      for (const DeviceLayout layout : {DeviceLayout::kOwnDevices, DeviceLayout::kOtherwise}) {
        facts.layout = layout;
        EXPECT_EQ(with(facts, algo), DevicePath::kHost);
      }
    }
  }
}

TEST(MayMeetBlocks, IsTrueOfBlocksAndOfPlainFormsThatMixWithThem) {
  Request request;
  for (const auto& [collective, may] :
       {std::pair(Collective::kAllGather, true), std::pair(Collective::kReduceScatter, true),
        std::pair(Collective::kAllReduce, false), std::pair(Collective::kBroadcast, false),
        std::pair(Collective::kAllToAll, false), std::pair(Collective::kGather, false),
        std::pair(Collective::kScatter, false)}) {
    request.collective = collective;
    EXPECT_EQ(may_meet_blocks(request), may);
  }
  request.blocks = std::make_shared<const Blocks>();
  EXPECT_TRUE(may_meet_blocks(request));
}

TEST(SuitsDevices, CollectivesButPremultipliedSums) {
  Request request{.collective = Collective::kAllReduce};
  EXPECT_TRUE(suits_devices(request));
  request.collective = Collective::kBarrier;
  EXPECT_TRUE(suits_devices(request));
  for (const auto transfer : {Collective::kSend, Collective::kRecv}) {
    request.collective = transfer;
    EXPECT_FALSE(suits_devices(request));
  }
  request = {.collective = Collective::kAllReduce, .scaled = true};
  EXPECT_FALSE(suits_devices(request));
  request = {.collective = Collective::kAllToAll, .blocks = std::make_shared<Blocks>()};
  EXPECT_TRUE(suits_devices(request));
  request = {.collective = Collective::kAllGather, .table = std::make_shared<BlockTable>()};
  EXPECT_TRUE(suits_devices(request));
}

} // namespace
} // namespace whorl
