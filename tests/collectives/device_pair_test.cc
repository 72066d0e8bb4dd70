// Tests of two devices of one process whose kernels exchange messages, and of what such kernels do
// where they cannot run, are aborted or captured. Built with a pretended device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "tests/support/device_case.h"
#include "tests/support/device_graph.h"
#include "tests/support/pretended_device.h"
#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;

/// Returns the number of devices, at least 1.
int devices() {
  const DeviceContext context; // initialises the driver
  int count = 0;
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
  return std::max(count, 1);
}

/// Two ranks on two devices.
class TwoDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    const DeviceContext context;
    if (!device_is_pretended()) GTEST_SKIP() << "a real device cannot be held";
  }
  void TearDown() override { hold_interpreters(-1); }

  /// Issues an allreduce of all ranks from this thread, without completing it.
  whorlResult_t issue(whorlComm_t first, whorlComm_t second) {
    whorlGroupStart();
    for (std::size_t rank = 0; rank < 2; ++rank) {
      whorlAllReduce(ranks_[rank].values.data(), ranks_[rank].values.data(), 100, whorlFloat32,
                     whorlSum, rank == 0 ? first : second, ranks_[rank].stream.get());
    }
    return whorlGroupEnd();
  }
  whorlResult_t issue(const ThreadWorld& world) { return issue(world.comm(0), world.comm(1)); }
  void expect_the_host_to_serve() {
    const long before = cooperative_launches();
    ThreadWorld world(2);
    for (int round = 0; round < 2; ++round) ASSERT_EQ(issue(world), whorlSuccess);
    for (Rank& rank : ranks_) {
      EXPECT_EQ(rank.values.read<float>(rank.stream.get()), std::vector<float>(100, 4.0f));
    }
    EXPECT_EQ(cooperative_launches(), before);
  }

  const ScopedEnv settings_{{"FAKE_CUDA_DEVICES", "2"}};
  struct Rank {
    explicit Rank(int device) : context(device % devices()) {} // SetUp() skips where there is one
    DeviceContext context;
    DeviceQueue stream;
    DeviceCopy values{std::vector<float>(100, 1.0f), stream.get()};
  };
  Rank ranks_[2]{Rank(0), Rank(1)};
};

TEST_F(TwoDevices, NeedNoSetting) {
  const long before = cooperative_launches();
  ThreadWorld world(2);
  ASSERT_EQ(issue(world), whorlSuccess);
  for (Rank& rank : ranks_) {
    EXPECT_EQ(rank.values.read<float>(rank.stream.get()), std::vector<float>(100, 2.0f));
  }
  EXPECT_EQ(cooperative_launches() - before, 2);
}

TEST_F(TwoDevices, ThatDoNotReachEachOtherAreServedByTheHost) {
  const ScopedEnv apart{{"FAKE_CUDA_NO_PEERS", "1"}};
  expect_the_host_to_serve();
}

TEST_F(TwoDevices, AreServedByTheHostWhereThatIsAskedFor) {
  for (const char* const way : {"host", "fused"}) {
    const ScopedEnv asked{{"WHORL_DEVICE_ALGO", way}};
    const long before = cooperative_launches();
    ThreadWorld world(2);
    ASSERT_EQ(issue(world), whorlSuccess);
    for (Rank& rank : ranks_) rank.stream.synchronize();
    EXPECT_EQ(cooperative_launches(), before);
  }
}

TEST_F(TwoDevices, AnUnknownWayIsRefused) {
  const ScopedEnv asked{{"WHORL_DEVICE_ALGO", "magic"}};
  ThreadWorld world(2);
  EXPECT_EQ(issue(world), whorlInvalidUsage);
  EXPECT_THAT(whorlGetLastError(world.comm(0)), HasSubstr("WHORL_DEVICE_ALGO=\"magic\""));
}

TEST_F(TwoDevices, AKernelThatDoesNotBeginIsNamed) {
  const ScopedEnv short_time{{"WHORL_TIMEOUT_MS", "200"}};
  ThreadWorld world(2);
  hold_interpreters(1);
  ASSERT_EQ(issue(world), whorlSuccess);
  ranks_[0].stream.synchronize(); // the kernel gives up
  for (int rank = 0; rank < 2; ++rank) {
    whorlResult_t state = whorlSuccess;
    ASSERT_EQ(whorlCommGetAsyncError(world.comm(rank), &state), whorlSuccess);
    EXPECT_EQ(state, whorlRemoteError);
    EXPECT_THAT(whorlGetLastError(world.comm(rank)), HasSubstr("rank 0"));
    EXPECT_THAT(whorlGetLastError(world.comm(rank)),
                HasSubstr("allreduce of 100 float32 (sum): waiting for rank 1"));
  }
  hold_interpreters(-1);
  ranks_[1].stream.synchronize(); // the late kernel leaves at once
  EXPECT_EQ(issue(world), whorlRemoteError);
}

TEST_F(TwoDevices, AnAbortLetsKernelsLeave) {
  whorlComm_t comms[2] = {};
  ASSERT_EQ(whorlCommInitAll(comms, 2, nullptr), whorlSuccess);
  hold_interpreters(1);
  ASSERT_EQ(issue(comms[0], comms[1]), whorlSuccess);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(whorlCommAbort(comms[0]), whorlSuccess);
  ranks_[0].stream.synchronize();
  const auto took = std::chrono::steady_clock::now() - begin; // the timeout is 30 s
  EXPECT_LT(took, std::chrono::seconds(15));
  whorlResult_t state = whorlSuccess;
  EXPECT_EQ(whorlCommGetAsyncError(comms[1], &state), whorlSuccess);
  EXPECT_EQ(state, whorlRemoteError);
  hold_interpreters(-1);
  ranks_[1].stream.synchronize();
  EXPECT_EQ(whorlCommAbort(comms[1]), whorlSuccess);
}

TEST_F(TwoDevices, RunInACaptureOnceTheirMemoryIsThere) {
  ThreadWorld world(2);
  ASSERT_EQ(issue(world), whorlSuccess);
  for (Rank& rank : ranks_) rank.stream.synchronize();
  const CUstream first = ranks_[0].stream.get(), second = ranks_[1].stream.get();
  CUevent fork = nullptr, join = nullptr;
  for (int device = 0; device < 2; ++device) {
    const DeviceContext own(device);
    ASSERT_EQ(cuEventCreate(device == 0 ? &fork : &join, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  }
  const DeviceGraph graph(
      first,
      [&] {
        EXPECT_EQ(cuEventRecord(fork, first), CUDA_SUCCESS);
        EXPECT_EQ(cuStreamWaitEvent(second, fork, 0), CUDA_SUCCESS);
        EXPECT_EQ(issue(world), whorlSuccess);
        EXPECT_EQ(cuEventRecord(join, second), CUDA_SUCCESS);
        EXPECT_EQ(cuStreamWaitEvent(first, join, 0), CUDA_SUCCESS);
      },
      CU_STREAM_CAPTURE_MODE_RELAXED);
  graph.launch(first);
  ranks_[0].stream.synchronize();
  for (const CUevent event : {fork, join}) EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
  for (Rank& rank : ranks_) {
    EXPECT_EQ(rank.values.read<float>(rank.stream.get()), std::vector<float>(100, 4.0f));
  }
}

TEST_F(TwoDevices, CannotHaveCapturesOfTheirOwn) {
  ThreadWorld world(2);
  ASSERT_EQ(issue(world), whorlSuccess);
  for (Rank& rank : ranks_) rank.stream.synchronize();
  for (Rank& rank : ranks_) {
    ASSERT_EQ(cuStreamBeginCapture(rank.stream.get(), CU_STREAM_CAPTURE_MODE_RELAXED),
              CUDA_SUCCESS);
  }
  EXPECT_EQ(issue(world), whorlUnhandledCudaError);
  EXPECT_THAT(whorlGetLastError(world.comm(1)), HasSubstr("must belong to the same capture"));
  for (Rank& rank : ranks_) {
    CUgraph graph = nullptr;
    cuStreamEndCapture(rank.stream.get(), &graph); // valid or not
    if (graph != nullptr) {
      EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    }
  }
}

TEST_F(TwoDevices, ACaptureIsRefusedBeforeThat) {
  ThreadWorld world(2);
  CUgraph graph = nullptr;
  for (Rank& rank : ranks_) {
    ASSERT_EQ(cuStreamBeginCapture(rank.stream.get(), CU_STREAM_CAPTURE_MODE_RELAXED),
              CUDA_SUCCESS);
  }
  EXPECT_EQ(issue(world), whorlInvalidUsage);
  EXPECT_THAT(whorlGetLastError(nullptr), HasSubstr("issue it outside the capture"));
  for (Rank& rank : ranks_) {
    ASSERT_EQ(cuStreamEndCapture(rank.stream.get(), &graph), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  }
  EXPECT_EQ(issue(world), whorlSuccess); // the refused call changed nothing
  for (int rank = 0; rank < 2; ++rank) {
    whorlResult_t state = whorlSuccess;
    EXPECT_EQ(whorlCommGetAsyncError(world.comm(rank), &state), whorlSuccess);
    EXPECT_EQ(state, whorlSuccess) << whorlGetLastError(world.comm(rank));
  }
  for (Rank& rank : ranks_) {
    EXPECT_EQ(rank.values.read<float>(rank.stream.get()), std::vector<float>(100, 2.0f));
  }
}

TEST_F(TwoDevices, AreServedByTheHostWhereTheDriverHasLessRoomThanItSays) {
  const ScopedEnv part{{"FAKE_CUDA_ROOM", "0"}};
  expect_the_host_to_serve();
}

// Checks nine ranks on a device that has room for eight blocks.
TEST(Room, TooLittleOfItLeavesTheOperationToTheHost) {
  const ScopedEnv asked{{"WHORL_DEVICE_ALGO", "schedule"}};
  constexpr int kRanks = 9;
  const DeviceContext context;
  const long before = cooperative_launches();
  if (before < 0) GTEST_SKIP() << "a real device is not that small";
  ThreadWorld world(kRanks);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    const DeviceContext own;
    const DeviceQueue stream;
    return run_case({.count = 1000}, rank, kRanks, comm, stream.get());
  });
  EXPECT_EQ(cooperative_launches(), before);
}

TEST(GraphsOfSchedules, DoNothingAfterAnAbort) {
  const ScopedEnv asked{{"WHORL_DEVICE_ALGO", "schedule"}};
  const DeviceContext context;
  whorlComm_t comms[2] = {};
  ASSERT_EQ(failure(whorlCommInitAll(comms, 2, nullptr)), "");
  const DeviceQueue stream;
  const DeviceCopy source(std::vector<float>(10, 1.0f), stream.get());
  const DeviceCopy results[2] = {{std::vector<float>(10, 0.0f), stream.get()},
                                 {std::vector<float>(10, 0.0f), stream.get()}};
  const auto broadcast = [&] {
    whorlGroupStart();
    for (int rank = 0; rank < 2; ++rank) { // the root waits for no rank
      whorlBroadcast(source.data(), results[rank].data(), 10, whorlFloat32, 0, comms[rank],
                     stream.get());
    }
    EXPECT_EQ(failure(whorlGroupEnd()), "");
  };
  broadcast();
  {
    const DeviceGraph graph(stream.get(), broadcast);
    for (const DeviceCopy& one : results) {
      EXPECT_EQ(one.read<float>(stream.get()), std::vector<float>(10, 1.0f));
      EXPECT_EQ(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(one.data()), 0, 40, stream.get()),
                CUDA_SUCCESS);
    }
    EXPECT_EQ(whorlCommAbort(comms[0]), whorlSuccess);
    graph.launch(stream.get());
    for (const DeviceCopy& one : results) {
      EXPECT_EQ(one.read<float>(stream.get()), std::vector<float>(10, 0.0f));
    }
  }
  EXPECT_EQ(whorlCommAbort(comms[1]), whorlSuccess);
}

} // namespace
} // namespace whorl::test
