// Tests of the errors of processes that share a device when captures or their replays fail, see
// device_replays_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/device_graph.h"
#include "tests/support/device_processes.h"
#include "tests/support/pretended_device.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kCount = 60'000; // a share for each of three ranks

struct Sums {
  explicit Sums(whorlComm_t to) : comm(to) {}
  whorlResult_t call() const {
    return whorlAllReduce(values.data(), values.data(), kCount, whorlFloat32, whorlSum, comm,
                          stream.get());
  }
  DeviceGraph graph(int operations = 1) const {
    return DeviceGraph(stream.get(), [&] {
      for (int i = 0; i < operations; ++i) EXPECT_EQ(failure(call(), comm), "");
    });
  }
  float first() const { return values.read<float>(stream.get())[0]; }

  whorlComm_t comm;
  const DeviceQueue stream;
  const DeviceCopy values{std::vector<float>(kCount, 1.0f), stream.get()};
};

TEST(DeviceReplaysErrors, ACaptureOfSomeRanksIsAnError) {
  for (const bool first : {false, true}) {
    const auto body = [=](RankContext& context, whorlComm_t comm) {
      const Sums sums(comm);
      if (!first) {
        ASSERT_EQ(failure(sums.call(), comm), "");
      }
      const auto call = [&] {
        EXPECT_EQ(sums.call(), whorlInvalidUsage);
        EXPECT_THAT(whorlGetLastError(comm), HasSubstr("rank 0"));
        EXPECT_THAT(whorlGetLastError(comm), HasSubstr("captures allreduce of 60000 float32"));
        EXPECT_THAT(whorlGetLastError(comm), HasSubstr("does not. All ranks must"));
      };
      if (context.rank != 0) return call();
      const DeviceGraph empty(sums.stream.get(), call);
    };
    EXPECT_EQ(run_world(2, body), "") << first;
  }
}

TEST(DeviceReplaysErrors, ADriverThatCannotCaptureTheWordsIsNoHarm) {
  if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  const auto body = [](RankContext&, whorlComm_t comm) {
    const Sums sums(comm);
    for (int i = 0; i < 2; ++i) {
      const DeviceGraph empty(sums.stream.get(), [&] { // the capture stays valid
        EXPECT_EQ(sums.call(), whorlInvalidUsage);
        EXPECT_THAT(whorlGetLastError(comm), HasSubstr("captures allreduce"));
        EXPECT_THAT(whorlGetLastError(comm), HasSubstr("the driver of rank 0"));
        EXPECT_EQ(whorlBarrier(comm, sums.stream.get()), whorlInvalidUsage);
      });
      empty.launch(sums.stream.get());
      ASSERT_EQ(failure(sums.call(), comm), "");
    }
    EXPECT_EQ(sums.first(), 4.0f);
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(2, body, {{"FAKE_CUDA_NO_CAPTURED_WORDS", "1"}}), "");
}

TEST(DeviceReplaysErrors, MemoryThatCannotBeSharedIsRefusedOnAllRanks) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const Sums sums(comm);
    CUdeviceptr pool = 0;
    ASSERT_EQ(cuMemAllocAsync(&pool, 4 * kCount, sums.stream.get()), CUDA_SUCCESS);
    void* const buffer = context.rank == 1 ? reinterpret_cast<void*>(pool) : sums.values.data();
    for (int i = 0; i < 2; ++i) {
      const DeviceGraph empty(sums.stream.get(), [&] {
        EXPECT_EQ(
            whorlAllReduce(buffer, buffer, kCount, whorlFloat32, whorlSum, comm, sums.stream.get()),
            whorlInvalidUsage);
        EXPECT_THAT(whorlGetLastError(comm), HasSubstr("the host has to do it"));
      });
      ASSERT_EQ(failure(sums.call(), comm), ""); // the refused call changed nothing
    }
    EXPECT_EQ(sums.first(), 4.0f);
    EXPECT_EQ(cuMemFree(pool), CUDA_SUCCESS);
  };
  EXPECT_EQ(run_world(2, body), "");
}

TEST(DeviceReplaysErrors, ARankThatStopsReplayingIsNamed) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const Sums sums(comm);
    const DeviceGraph graph = sums.graph(2);
    for (int i = 0; i < 3; ++i) graph.launch(sums.stream.get());
    sums.stream.synchronize();
    if (context.rank != 1) {
      for (int i = 0; i < 50; ++i) graph.launch(sums.stream.get()); // the stream passes them all
    }
    const std::string error = error_of(comm);
    EXPECT_THAT(error, HasSubstr("in allreduce number 1 of 60000 float32 (sum)"));
    EXPECT_THAT(error, HasSubstr("replayed by a graph: waiting for rank 1"));
    EXPECT_THAT(error, HasSubstr("come to the operation in its replay"));
    EXPECT_EQ(sums.first(), 729.0f); // 3^6
    graph.launch(sums.stream.get()); // too late: the operation is dropped
    sums.stream.synchronize();
    EXPECT_EQ(sums.first(), 729.0f);
    EXPECT_NE(sums.call(), whorlSuccess);
  };
  EXPECT_EQ(run_world(3, body, {{"WHORL_TIMEOUT_MS", "1000"}}), "");
}

// Checks that the timeout applies to each wait and not to their sum.
TEST(DeviceReplaysErrors, ManyReplaysMayTakeLongerThanTheTimeout) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const Sums sums(comm);
    const DeviceGraph graph = sums.graph();
    for (int i = 0; i < 6; ++i) {
      if (context.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
      graph.launch(sums.stream.get());
    }
    EXPECT_EQ(sums.first(), 64.0f);
    whorlResult_t state = whorlSuccess;
    EXPECT_EQ(whorlCommGetAsyncError(comm, &state), whorlSuccess);
    EXPECT_EQ(state, whorlSuccess) << whorlGetLastError(comm);
  };
  EXPECT_EQ(run_world(2, body, {{"WHORL_TIMEOUT_MS", "2500"}}), "");
}

TEST(DeviceReplaysErrors, GraphsInDifferentOrdersAreNoticed) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const Sums sums(comm);
    const DeviceGraph first = sums.graph(), second = sums.graph();
    (context.rank == 0 ? first : second).launch(sums.stream.get());
    EXPECT_THAT(error_of(comm), HasSubstr("it replays another one"));
    sums.stream.synchronize();
    EXPECT_EQ(sums.first(), 1.0f);
  };
  EXPECT_EQ(run_world(2, body, {{"WHORL_TIMEOUT_MS", "1000"}}), "");
}

TEST(DeviceReplaysErrors, ADeadRankDoesNotHoldReplaysUp) {
  for (const bool before : {true, false}) {
    const auto body = [=](RankContext& context, whorlComm_t comm) {
      const Sums sums(comm);
      const DeviceGraph graph = sums.graph(2);
      graph.launch(sums.stream.get());
      sums.stream.synchronize();
      context.barrier();
      if (context.rank == 1) {
        if (!before) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        context.die();
      }
      if (before) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      for (int i = 0; i < 20; ++i) graph.launch(sums.stream.get());
      EXPECT_THAT(error_of(comm), HasSubstr("rank 1"));
      EXPECT_THAT(error_of(comm), HasSubstr("died"));
      sums.stream.synchronize();
    };
    const auto outcomes = outcomes_of(3, {}, body);
    EXPECT_EQ(outcomes[0].failures, "");
    EXPECT_TRUE(outcomes[1].killed);
    EXPECT_EQ(outcomes[2].failures, "");
  }
}

// Checks the error after a rank is killed while all ranks replay.
TEST(DeviceReplaysErrors, ARankThatDiesWhileAllReplayIsNamed) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const Sums sums(comm);
    const DeviceGraph graph = sums.graph(2);
    context.barrier();
    if (context.rank == 1) {
      for (int i = 0; i < 10; ++i) graph.launch(sums.stream.get());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      context.die();
    }
    for (int i = 0; i < 500; ++i) graph.launch(sums.stream.get());
    EXPECT_THAT(error_of(comm), HasSubstr("rank 1"));
    EXPECT_THAT(error_of(comm), HasSubstr("died"));
    sums.stream.synchronize();
  };
  const auto outcomes = outcomes_of(2, {}, body);
  EXPECT_EQ(outcomes[0].failures, "");
}

TEST(DeviceReplaysErrors, AnAbortEndsReplaysOnAllRanks) {
  const auto outcomes = run_ranks(3, Mode::kProcesses, [](RankContext& context) {
    const DeviceContext device;
    whorlComm_t comm = join(context, {});
    const Sums sums(comm);
    const DeviceGraph graph = sums.graph(2);
    if (context.rank != 2) {
      for (int i = 0; i < 20; ++i) graph.launch(sums.stream.get());
    }
    context.barrier();
    const auto begin = std::chrono::steady_clock::now();
    if (context.rank == 0) {
      EXPECT_EQ(whorlCommAbort(comm), whorlSuccess);
    } else {
      EXPECT_THAT(error_of(comm), HasSubstr("rank 0"));
    }
    sums.stream.synchronize();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    EXPECT_EQ(sums.first(), 1.0f);
    if (context.rank != 0) {
      EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
    }
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

} // namespace
} // namespace whorl::test
