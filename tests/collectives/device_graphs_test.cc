// Graphs of collectives between devices: what they repeat, in which order with other operations,
// and what happens when a rank does not launch its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/device_graph.h"
#include "tests/support/device_peers.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;
using testing::RankContext;
using DeviceGraphs = DevicePeers;

TEST_F(DeviceGraphs, TakeTheirPlaceAmongOtherOperations) {
  const auto body = [](RankContext&, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<std::int32_t>(3000, 1), stream.get());
    ASSERT_EQ(failure(sum_up(values, 3000, comm, stream), comm), "");
    const DeviceGraph graph(stream.get(), [&] {
      for (int i = 0; i < 2; ++i) EXPECT_EQ(failure(sum_up(values, 3000, comm, stream), comm), "");
    });
    for (int round = 0; round < 3; ++round) {
      graph.launch(stream.get());
      ASSERT_EQ(failure(sum_up(values, 3000, comm, stream), comm), "");
    }
    EXPECT_EQ(values.read<std::int32_t>(stream.get()),
              std::vector<std::int32_t>(3000, 1 << (1 + 2 + 3 * 3)));
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run(2, body), "");
}

TEST_F(DeviceGraphs, AreRefusedBeforeTheirMemoryIsThere) {
  const auto body = [](RankContext&, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<std::int32_t>(50, 1), stream.get());
    const DeviceGraph empty(stream.get(), [&] {
      EXPECT_EQ(sum_up(values, 50, comm, stream), whorlInvalidUsage);
      EXPECT_EQ(whorlBarrier(comm, stream.get()), whorlInvalidUsage);
    });
    EXPECT_EQ(failure(sum_up(values, 50, comm, stream), comm), ""); // nothing has happened
    EXPECT_EQ(values.read<std::int32_t>(stream.get())[49], 2);
  };
  EXPECT_EQ(run(2, body), "");
}

TEST_F(DeviceGraphs, OfSomeRanksAreAnError) {
  for (const bool on_host : {false, true}) { // the rank that does not capture
    const auto body = [=](RankContext& context, whorlComm_t comm) {
      const DeviceQueue stream;
      const DeviceCopy values(std::vector<std::int32_t>(50, 1), stream.get());
      std::vector<std::int32_t> host(50, 1);
      ASSERT_EQ(failure(sum_up(values, 50, comm, stream), comm), "");
      if (context.rank == 0) {
        const DeviceGraph graph(
            stream.get(), [&] { EXPECT_EQ(sum_up(values, 50, comm, stream), whorlInvalidUsage); });
        EXPECT_THAT(whorlGetLastError(comm), HasSubstr("captures allreduce of 50 int32 (sum)"));
      } else if (on_host) {
        EXPECT_NE(whorlAllReduce(host.data(), host.data(), 50, whorlInt32, whorlSum, comm, nullptr),
                  whorlSuccess);
      } else {
        EXPECT_EQ(sum_up(values, 50, comm, stream), whorlInvalidUsage);
        EXPECT_THAT(whorlGetLastError(comm), HasSubstr("does not. All ranks must"));
      }
    };
    EXPECT_EQ(run(2, body), "") << on_host;
  }
}

// Nobody watches what a graph repeats: who asks finds the report.
TEST_F(DeviceGraphs, ThatOneRankDoesNotLaunchGiveUp) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<std::int32_t>(5000, 1), stream.get());
    ASSERT_EQ(failure(sum_up(values, 5000, comm, stream), comm), "");
    stream.synchronize();
    ASSERT_EQ(whorlCommSetTimeout(comm, 1000), whorlSuccess); // what is captured has it
    const DeviceGraph graph(
        stream.get(), [&] { EXPECT_EQ(failure(sum_up(values, 5000, comm, stream), comm), ""); });
    stream.synchronize();
    if (context.rank == 0) {
      graph.launch(stream.get());
    }
    EXPECT_THAT(error_of(comm), HasSubstr("in allreduce of 5000 int32 (sum): waiting for rank 1"));
    stream.synchronize();
  };
  EXPECT_EQ(run(2, body), "");
}

} // namespace
} // namespace whorl::test
