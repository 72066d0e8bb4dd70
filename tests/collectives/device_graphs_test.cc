// Tests of graphs of collectives between devices: their replays, their order with other operations,
// and ranks that do not launch their graph.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/device_graph.h"
#include "tests/support/device_peers.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;
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
              std::vector<std::int32_t>(3000, 1 << (1 + 3 * 3)));
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run(2, body), "");
}

// Checks operations that all use the same FIFOs.
TEST_F(DeviceGraphs, WaitForOperationsInOtherStreamsAndTheyForGraphs) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue first, second;
    const DeviceCopy a(std::vector<std::int32_t>(3000, 1), first.get());
    const DeviceCopy b(std::vector<std::int32_t>(3000, 1), second.get());
    ASSERT_EQ(failure(sum_up(a, 3000, comm, first), comm), "");
    const DeviceGraph graph(second.get(),
                            [&] { ASSERT_EQ(failure(sum_up(b, 3000, comm, second), comm), ""); });
    for (const bool graph_first : {false, true}) {
      first.synchronize();
      second.synchronize();
      context.barrier();
      std::unique_ptr<StreamBarrier> barrier;
      if (context.rank == 1) {
        barrier = std::make_unique<StreamBarrier>((graph_first ? second : first).get());
      }
      if (graph_first) graph.launch(second.get());
      ASSERT_EQ(failure(sum_up(a, 3000, comm, first), comm), "");
      if (!graph_first) graph.launch(second.get());
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_EQ(cuStreamQuery((graph_first ? first : second).get()), CUDA_ERROR_NOT_READY);
      context.barrier();
      if (barrier) barrier->open();
    }
    EXPECT_EQ(a.read<std::int32_t>(first.get()), std::vector<std::int32_t>(3000, 8));
    EXPECT_EQ(b.read<std::int32_t>(second.get()), std::vector<std::int32_t>(3000, 4));
  };
  EXPECT_EQ(run(2, body), "");
}

TEST_F(DeviceGraphs, HaveAnOrderAmongTheirStreams) {
  const auto body = [](RankContext&, whorlComm_t comm) {
    const DeviceQueue first, second, third;
    const DeviceCopy a(std::vector<std::int32_t>(20'000, 1), first.get());
    const DeviceCopy b(std::vector<std::int32_t>(20'000, 1), second.get());
    ASSERT_EQ(failure(sum_up(a, 20'000, comm, first), comm), "");
    CUevent fork = nullptr, join = nullptr;
    for (CUevent* const event : {&fork, &join}) {
      ASSERT_EQ(cuEventCreate(event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    }
    const DeviceGraph graph(first.get(), [&] {
      EXPECT_EQ(cuEventRecord(fork, first.get()), CUDA_SUCCESS);
      EXPECT_EQ(cuStreamWaitEvent(second.get(), fork, 0), CUDA_SUCCESS);
      for (int round = 0; round < 4; ++round) {
        ASSERT_EQ(failure(sum_up(a, 20'000, comm, first), comm), "");
        if (round % 2 == 1) {
          const DeviceGraph between(
              third.get(), [&] { EXPECT_EQ(failure(sum_up(a, 20'000, comm, third), comm), ""); });
        }
        ASSERT_EQ(failure(sum_up(b, 20'000, comm, second), comm), "");
      }
      EXPECT_EQ(cuEventRecord(join, second.get()), CUDA_SUCCESS);
      EXPECT_EQ(cuStreamWaitEvent(first.get(), join, 0), CUDA_SUCCESS);
    });
    graph.launch(first.get());
    EXPECT_EQ(a.read<std::int32_t>(first.get()), std::vector<std::int32_t>(20'000, 32));
    EXPECT_EQ(b.read<std::int32_t>(first.get()), std::vector<std::int32_t>(20'000, 16));
    for (const CUevent event : {fork, join}) EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
  };
  EXPECT_EQ(run(2, body, {{"WHORL_TIMEOUT_MS", "5000"}}), "");
}

TEST_F(DeviceGraphs, MayBeCapturedWhileAnotherOneIs) {
  const auto body = [](RankContext&, whorlComm_t comm) {
    const DeviceQueue first, second;
    const DeviceCopy a(std::vector<std::int32_t>(20'000, 1), first.get());
    const DeviceCopy b(std::vector<std::int32_t>(20'000, 1), second.get());
    ASSERT_EQ(failure(sum_up(a, 20'000, comm, first), comm), "");
    std::unique_ptr<DeviceGraph> inner;
    const DeviceGraph outer(first.get(), [&] {
      EXPECT_EQ(failure(sum_up(a, 20'000, comm, first), comm), "");
      inner = std::make_unique<DeviceGraph>(
          second.get(), [&] { EXPECT_EQ(failure(sum_up(b, 20'000, comm, second), comm), ""); });
      EXPECT_EQ(failure(sum_up(a, 20'000, comm, first), comm), "");
    });
    for (int round = 0; round < 3; ++round) { // in two streams: one waits for the other
      outer.launch(first.get());
      inner->launch(second.get());
    }
    EXPECT_EQ(a.read<std::int32_t>(first.get()), std::vector<std::int32_t>(20'000, 2 << (2 * 3)));
    EXPECT_EQ(b.read<std::int32_t>(second.get()), std::vector<std::int32_t>(20'000, 1 << 3));
  };
  EXPECT_EQ(run(2, body, {{"WHORL_TIMEOUT_MS", "5000"}}), "");
}

TEST_F(DeviceGraphs, AreOverWhenTheCommunicatorIsDestroyed) {
  const auto outcomes = run_ranks(2, Mode::kProcesses, [](RankContext& context) {
    const DeviceContext device(context.rank);
    whorlComm_t comm = join(context, {{"FAKE_CUDA_IMPLICIT", "0"}}); // else freeing memory waits
    ASSERT_NE(comm, nullptr);
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<std::int32_t>(100, 1), stream.get());
    ASSERT_EQ(failure(sum_up(values, 100, comm, stream), comm), "");
    const DeviceGraph graph(
        stream.get(), [&] { ASSERT_EQ(failure(sum_up(values, 100, comm, stream), comm), ""); });
    stream.synchronize();
    context.barrier();
    hold_interpreters(context.rank);
    graph.launch(stream.get());
    std::atomic<bool> open{false};
    std::thread opener([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      open = true;
      hold_interpreters(-1);
    });
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
    EXPECT_TRUE(open);
    opener.join();
    EXPECT_EQ(values.read<std::int32_t>(stream.get()), std::vector<std::int32_t>(100, 4));
    context.barrier();
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST_F(DeviceGraphs, AreRefusedBeforeTheirMemoryIsThere) {
  const auto body = [](RankContext&, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<std::int32_t>(50, 1), stream.get());
    const DeviceGraph graph(stream.get(), [&] {
      EXPECT_EQ(sum_up(values, 50, comm, stream), whorlInvalidUsage);
      EXPECT_THAT(whorlGetLastError(comm), HasSubstr("issue one outside the capture before"));
      EXPECT_EQ(failure(whorlBarrier(comm, stream.get()), comm), "");
    });
    graph.launch(stream.get());
    EXPECT_EQ(failure(sum_up(values, 50, comm, stream), comm), ""); // still works
    EXPECT_EQ(values.read<std::int32_t>(stream.get())[49], 2);
  };
  EXPECT_EQ(run(2, body), "");
}

TEST_F(DeviceGraphs, OfWhatTheHostHasToDoAreRefused) {
  const auto body = [](RankContext&, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<std::int32_t>(50, 1), stream.get());
    for (int round = 0; round < 2; ++round) {
      ASSERT_EQ(failure(sum_up(values, 50, comm, stream), comm), "");
      stream.synchronize();
      const DeviceGraph empty(
          stream.get(), [&] { EXPECT_EQ(sum_up(values, 50, comm, stream), whorlInvalidUsage); });
    }
    EXPECT_TRUE(host_was_used(comm));
    EXPECT_EQ(values.read<std::int32_t>(stream.get())[49], 4);
  };
  EXPECT_EQ(run(2, body, {{"FAKE_CUDA_PROCESSORS", "1"}}), ""); // no room for the kernels
}

TEST_F(DeviceGraphs, OfSomeRanksAreAnError) {
  for (const bool on_host : {false, true}) { // on the rank that does not capture
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

// Checks that a query finds the report of a replay, which no thread watches.
TEST_F(DeviceGraphs, ThatOneRankDoesNotLaunchGiveUp) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<std::int32_t>(5000, 1), stream.get());
    ASSERT_EQ(failure(sum_up(values, 5000, comm, stream), comm), "");
    stream.synchronize();
    ASSERT_EQ(whorlCommSetTimeout(comm, 1000), whorlSuccess); // for the captured call
    const DeviceGraph graph(
        stream.get(), [&] { EXPECT_EQ(failure(sum_up(values, 5000, comm, stream), comm), ""); });
    ASSERT_EQ(whorlCommSetTimeout(comm, 20'000), whorlSuccess);
    ASSERT_EQ(failure(sum_up(values, 5000, comm, stream), comm), "");
    stream.synchronize();
    if (context.rank == 0) {
      graph.launch(stream.get());
    }
    const std::string error = error_of(comm);
    EXPECT_THAT(error, HasSubstr("within the timeout of 1.0 s"));
    EXPECT_THAT(error, HasSubstr("in allreduce of 5000 int32 (sum): waiting for rank 1"));
    stream.synchronize();
  };
  EXPECT_EQ(run(2, body), "");
}

} // namespace
} // namespace whorl::test
