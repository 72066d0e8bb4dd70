// Tests of the choice of schedules, or of a direct exchange, for collectives between devices.
#include "device/kernel/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace whorl {
namespace {

constexpr std::uint32_t kBlocks = 64;

Membership members_of(int nranks, std::uint32_t slots = 0, std::uint32_t slot_bytes = 0) {
  Membership members;
  members.nranks = nranks;
  members.peers.resize(static_cast<std::size_t>(nranks));
  members.peers[0].slots = slots;
  members.peers[0].slot_bytes = slot_bytes;
  return members;
}

class Planner {
 public:
  explicit Planner(int nranks, const std::string& algorithms = "",
                   const Membership& members = Membership())
      : planner_(members.peers.empty() ? members_of(nranks) : members,
                 {.shape = {.nranks = nranks}, .algorithms = algorithms, .verify = true}) {
    const Status status = planner_.prepare();
    EXPECT_TRUE(status.ok()) << status.message();
  }
  DevicePlanner* operator->() { return &planner_; }

  static Request bytes(std::size_t count, Collective collective = Collective::kAllReduce) {
    return {.collective = collective, .type = DataType::kUint8, .count = count};
  }
  /// Returns whether an allreduce of `count` bytes is a direct exchange.
  bool direct(std::size_t count, std::uint32_t blocks = kBlocks) {
    const auto plan = planner_.plan(bytes(count), 1, blocks);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    gpu::Launch launch{};
    EXPECT_TRUE(planner_.set(launch, **plan, bytes(count), blocks));
    const bool direct = launch.form == gpu::LaunchForm::kDirect;
    EXPECT_EQ((*plan)->schedules.empty(), direct);
    return direct;
  }
  /// Returns the size of the largest allreduce that is a direct exchange.
  std::size_t largest_direct(std::uint32_t blocks = kBlocks) {
    std::size_t least = 0, above = std::size_t{1} << 24;
    while (above - least > 1) {
      const std::size_t middle = (least + above) / 2;
      (direct(middle, blocks) ? least : above) = middle;
    }
    return least;
  }

 private:
  DevicePlanner planner_;
};

TEST(DirectExchanges, HaveAPartForEachBlockAtMost) {
  EXPECT_EQ(Planner(2).largest_direct(), 64U * gpu::kLineMessage);
  EXPECT_EQ(Planner(2).largest_direct(1), 1U * gpu::kLineMessage);
  EXPECT_EQ(Planner(2).largest_direct(5), 5U * gpu::kLineMessage);
  EXPECT_EQ(Planner(2).largest_direct(1000), 64U * gpu::kLineMessage);
}

TEST(DirectExchanges, HaveAPartForEachChannelAtMost) {
  const auto check = [](Planner planner, std::uint32_t channels) {
    EXPECT_EQ(planner->layout().channels, channels);
    EXPECT_EQ(planner.largest_direct(), channels * gpu::kLineMessage);
  };
  check(Planner(4), 64);
  check(Planner(5), 32);
  check(Planner(8), 32);
  check(Planner(9), 16);
  check(Planner(3, "", members_of(3, 8, 256 * 1024)), 16);
}

TEST(DirectExchanges, SendAMebibyteAtMost) {
  for (const int nranks : {20, 33, 64}) {
    EXPECT_EQ(Planner(nranks).largest_direct(),
              (std::size_t{1} << 20) / static_cast<std::size_t>(nranks - 1));
  }
}

TEST(DirectExchanges, AreNotAmongTheAlgorithmsThatAUserNames) {
  EXPECT_FALSE(Planner(2, "allreduce:ring").direct(8));
}

TEST(DevicePlans, AreMadeOnceForAnAlgorithmAndRoot) {
  Planner planner(4, "broadcast:binomial");
  const auto plan = [&](int root, std::size_t count) {
    Request request = Planner::bytes(count, Collective::kBroadcast);
    request.peer = root;
    const auto found = planner->plan(request, 1, kBlocks);
    EXPECT_TRUE(found.ok()) << found.status().message();
    return found.ok() ? *found : nullptr;
  };
  DevicePlan* const first = plan(0, 1000);
  EXPECT_EQ(plan(0, 2000), first);
  EXPECT_NE(plan(1, 1000), first);
  EXPECT_EQ(plan(0, 1000), first);
  EXPECT_EQ(first->schedules.size(), 4U);
  EXPECT_EQ(first->bytes.size(), 4U);
}

TEST(DevicePlans, OfAveragesCombineAllInputsAtOnce) {
  Planner planner(4, "allreduce:ring");
  const auto plan = [&](DataType type, ReduceOp op) {
    Request request = Planner::bytes(1 << 20);
    request.type = type;
    request.op = op;
    const auto found = planner->plan(request, 1, kBlocks);
    EXPECT_TRUE(found.ok()) << found.status().message();
    return found.ok() ? *found : nullptr;
  };
  DevicePlan* const ring = plan(DataType::kFloat16, ReduceOp::kSum);
  EXPECT_EQ(plan(DataType::kInt32, ReduceOp::kAvg), ring);
  EXPECT_NE(plan(DataType::kFloat16, ReduceOp::kAvg), ring);
}

TEST(DevicePlans, AreForTheBlocksOfWhichADeviceHasRoom) {
  Planner planner(4, "allreduce:ring");
  const Request request = Planner::bytes(1 << 26);
  const auto plan = planner->plan(request, 1, kBlocks);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  for (const std::uint32_t blocks : {1U, 7U, 64U, 1000U}) {
    gpu::Launch launch{};
    ASSERT_TRUE(planner->set(launch, **plan, request, blocks));
    EXPECT_EQ(launch.instances, std::min(blocks, 64U));
  }
  gpu::Launch launch{};
  EXPECT_FALSE(planner->set(launch, **plan, request, 0));
  EXPECT_FALSE(planner->set_exchange(launch, request, 0));
}

TEST(DeviceFifoLayout, KeepsItsRoomWhateverRanksAskFor) {
  for (int nranks = 2; nranks <= 64; ++nranks) {
    for (const std::uint32_t slots : {0U, 1U, 3U, 8U, 1024U}) {
      for (const std::uint32_t slot_bytes : {0U, 1U, 4096U, 100'000U, 1U << 26}) {
        const DevicePlanner planner(members_of(nranks, slots, slot_bytes),
                                    {.shape = {.nranks = nranks}});
        const gpu::FifoLayout& layout = planner.layout();
        EXPECT_GE(layout.channels, 16U);
        EXPECT_LE(layout.channels, 64U);
        EXPECT_GE(layout.slots, 2U);
        EXPECT_EQ(layout.slots & (layout.slots - 1), 0U);
        EXPECT_GE(layout.slot_bytes, 128U);
        EXPECT_EQ(layout.slot_bytes % 128, 0U);
        EXPECT_LE(layout.region_bytes() - layout.slots_at(), std::size_t{32} << 20)
            << nranks << " ranks, " << slots << " slots of " << slot_bytes;
      }
    }
  }
}

TEST(DeviceFifoLayout, AndAlgorithmsAreInTheFingerprint) {
  const std::uint64_t plain = Planner(4)->fingerprint();
  EXPECT_EQ(Planner(4)->fingerprint(), plain);
  EXPECT_NE(Planner(5)->fingerprint(), plain);
  EXPECT_NE(Planner(4, "allreduce:ring")->fingerprint(), plain);
  EXPECT_NE(Planner(4, "", members_of(4, 8))->fingerprint(), plain);
  EXPECT_NE(Planner(4, "", members_of(4, 0, 4096))->fingerprint(), plain);
}

} // namespace
} // namespace whorl
