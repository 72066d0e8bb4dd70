// Tests of calls on device memory, on streams of a device. Built with a pretended device, see
// tests/support/fake_cuda; with the real driver first in LD_LIBRARY_PATH it runs on a real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/device_case.h"
#include "tests/support/device_graph.h"
#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;

void end_capture(CUstream stream) {
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

class Device : public ::testing::TestWithParam<int> {};

TEST_P(Device, EveryCollectiveGivesTheSameAsOnTheHost) {
  const std::vector<std::size_t> counts{1, 1000, 70'001};
  run_on_device(GetParam(), [&](int rank, whorlComm_t comm, const DeviceQueue& stream) {
    return run_every_collective(rank, GetParam(), comm, stream.get(), counts);
  });
}

TEST_P(Device, SomeRanksMayHaveTheirBuffersOnTheHost) {
  run_on_device(GetParam(),
                [&](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
                  int turn = 0;
                  for (const auto kind : CollectiveCase::kKinds) {
                    const CollectiveCase c{.kind = kind, .count = 5000, .type = whorlFloat64};
                    const bool on_device = (rank + turn++) % 2 == 0;
                    if (auto text = run_case(c, rank, GetParam(), comm, stream.get(), on_device);
                        !text.empty()) {
                      return text;
                    }
                  }
                  return {};
                });
}
INSTANTIATE_TEST_SUITE_P(Ranks, Device, ::testing::Values(1, 2, 3));

// Checks that one rank can capture the same calls as many ranks can, as with NCCL.
TEST(DeviceOrder, AnOperationOfOneRankMayBeCaptured) {
  run_on_device(1, [](int, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    const DeviceCopy in(std::vector<float>(100, 2.0f), stream.get());
    const DeviceCopy out(std::vector<float>(100), stream.get());
    whorlResult_t result = whorlSuccess;
    const DeviceGraph graph(stream.get(), [&] {
      result =
          whorlAllReduce(in.data(), out.data(), 100, whorlFloat32, whorlSum, comm, stream.get());
    });
    EXPECT_EQ(out.read<float>(stream.get()), std::vector<float>(100));
    graph.launch(stream.get());
    EXPECT_EQ(out.read<float>(stream.get()), std::vector<float>(100, 2.0f));
    return failure(result, comm);
  });
}

TEST(DeviceOrder, OperationsTakeTheirPlaceInTheStream) {
  constexpr int kRanks = 2;
  constexpr std::size_t kCount = 1 << 16;
  constexpr int kRounds = 20;
  run_on_device(kRanks, [&](int, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    const std::vector<std::int32_t> ones(kCount, 1);
    const DeviceCopy values(ones, stream.get());
    // Each operation doubles the result of the one before it alone.
    for (int round = 0; round < kRounds; ++round) {
      const whorlResult_t result = whorlAllReduce(values.data(), values.data(), kCount, whorlInt32,
                                                  whorlSum, comm, stream.get());
      if (result != whorlSuccess) return failure(result, comm);
    }
    for (const std::int32_t value : values.read<std::int32_t>(stream.get())) {
      if (value != 1 << kRounds) return "got " + std::to_string(value);
    }
    return {};
  });
}

TEST(DeviceOrder, AnOperationWithoutAStreamIsOnTheDefaultStream) {
  const DeviceContext context;
  ThreadWorld world(1);
  std::vector<float> values{1, 2, 3};
  const DeviceCopy in(values, nullptr);
  const DeviceCopy out(std::vector<float>(3), nullptr);
  ASSERT_EQ(
      whorlAllReduce(in.data(), out.data(), 3, whorlFloat32, whorlSum, world.comm(0), nullptr),
      whorlSuccess);
  EXPECT_EQ(out.read<float>(nullptr), values);
}

TEST(DeviceOrder, ABlockingCallOnTheHostFollowsOneThatWasOnTheDevice) {
  // The second call looks like a repetition of the first one.
  run_on_device(2, [&](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    const std::vector<std::int64_t> mine(100, rank + 1);
    std::vector<std::int64_t> on_host(100);
    const DeviceCopy in(mine, stream.get());
    const DeviceCopy out(on_host, stream.get());
    for (int i = 0; i < 3; ++i) {
      whorlResult_t result =
          whorlAllReduce(mine.data(), on_host.data(), 100, whorlInt64, whorlSum, comm, nullptr);
      if (result != whorlSuccess) return failure(result, comm);
      if (on_host[99] != 3) return "on the host " + std::to_string(on_host[99]);
      result = whorlAllReduce(in.data(), out.data(), 100, whorlInt64, whorlSum, comm, stream.get());
      if (result != whorlSuccess) return failure(result, comm);
      if (out.read<std::int64_t>(stream.get())[99] != 3) return "on the device";
    }
    return {};
  });
}

TEST(DeviceGroups, SendsAndReceivesOfAGroupPassEachOther) {
  constexpr int kRanks = 3;
  run_on_device(kRanks, [&](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    const std::vector<std::int32_t> mine(40'000, rank);
    const DeviceCopy out(mine, stream.get());
    std::vector<std::unique_ptr<DeviceCopy>> in;
    whorlGroupStart();
    for (int peer = 0; peer < kRanks; ++peer) {
      in.push_back(
          std::make_unique<DeviceCopy>(std::vector<std::int32_t>(40'000, -1), stream.get()));
      whorlSend(out.data(), 40'000, whorlInt32, peer, comm, stream.get());
      whorlRecv(in.back()->data(), 40'000, whorlInt32, peer, comm, stream.get());
    }
    if (const auto text = failure(whorlGroupEnd(), comm); !text.empty()) return text;
    for (int peer = 0; peer < kRanks; ++peer) {
      const auto got = in[static_cast<std::size_t>(peer)]->read<std::int32_t>(stream.get());
      if (got != std::vector<std::int32_t>(40'000, peer)) return "from " + std::to_string(peer);
    }
    return {};
  });
}

TEST(DeviceGroups, OneThreadDrivesSeveralRanksOnOneStream) {
  constexpr int kRanks = 4;
  const DeviceContext context;
  const DeviceQueue stream;
  ThreadWorld world(kRanks);
  std::vector<std::unique_ptr<DeviceCopy>> buffers;
  for (int rank = 0; rank < kRanks; ++rank) {
    buffers.push_back(std::make_unique<DeviceCopy>(std::vector<float>(1000, 1.5f), stream.get()));
  }
  whorlGroupStart();
  for (int rank = 0; rank < kRanks; ++rank) {
    float* const data = buffers[static_cast<std::size_t>(rank)]->data<float>();
    ASSERT_EQ(
        whorlAllReduce(data, data, 1000, whorlFloat32, whorlSum, world.comm(rank), stream.get()),
        whorlSuccess);
  }
  ASSERT_EQ(whorlGroupEnd(), whorlSuccess);
  for (const auto& buffer : buffers) {
    EXPECT_EQ(buffer->read<float>(stream.get()), std::vector<float>(1000, 6.0f));
  }
}

TEST(DeviceBlocks, OfDifferentSizesAreExchanged) {
  constexpr int kRanks = 3;
  const std::array<std::size_t, kRanks> counts{5, 0, 30'000};
  run_on_device(kRanks, [&](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    const std::size_t mine = counts[static_cast<std::size_t>(rank)];
    const DeviceCopy in(std::vector<std::int32_t>(mine + 1, rank), stream.get());
    const DeviceCopy out(std::vector<std::int32_t>(total + 3, -1), stream.get());
    const std::array<std::size_t, kRanks> at{0, 5, 8}; // leaves a gap that no rank writes
    const whorlResult_t result = whorlAllGatherv(in.data(), mine, out.data(), counts.data(),
                                                 at.data(), whorlInt32, comm, stream.get());
    if (result != whorlSuccess) return failure(result, comm);
    std::vector<std::int32_t> expected(counts[0], 0);
    expected.resize(8, -1);
    expected.resize(total + 3, 2);
    return out.read<std::int32_t>(stream.get()) == expected ? "" : "wrong values";
  });
}

TEST(DeviceOperators, TheFactorOfAScaledSumMayBeOnTheDevice) {
  run_on_device(2, [&](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    const DeviceCopy factor(std::vector<float>{rank == 0 ? 2.0f : 10.0f}, stream.get());
    const DeviceCopy values(std::vector<float>(50, 1.0f), stream.get());
    whorlRedOp_t op = whorlSum;
    whorlResult_t result =
        whorlRedOpCreatePreMulSum(&op, factor.data(), whorlFloat32, whorlScalarDevice, comm);
    if (result != whorlSuccess) return failure(result, comm);
    result = whorlAllReduce(values.data(), values.data(), 50, whorlFloat32, op, comm, stream.get());
    if (result != whorlSuccess) return failure(result, comm);
    const auto got = values.read<float>(stream.get());
    whorlRedOpDestroy(op, comm);
    return got == std::vector<float>(50, 12.0f) ? "" : "got " + std::to_string(got[0]);
  });
}

TEST(DeviceOperators, TheFactorMayBeOnTheDeviceWhereTheBuffersAreNot) {
  const DeviceContext context;
  ThreadWorld world(1);
  const DeviceCopy factor(std::vector<float>{3.0f}, nullptr);
  whorlRedOp_t op = whorlSum;
  ASSERT_EQ(
      whorlRedOpCreatePreMulSum(&op, factor.data(), whorlFloat32, whorlScalarDevice, world.comm(0)),
      whorlSuccess);
  void* pinned = nullptr;
  ASSERT_EQ(cuMemHostAlloc(&pinned, 50 * sizeof(float), 0), CUDA_SUCCESS);
  std::vector<float> pageable(50);
  for (float* const values : {pageable.data(), static_cast<float*>(pinned)}) {
    std::fill_n(values, 50, 2.0f);
    EXPECT_EQ(whorlAllReduce(values, values, 50, whorlFloat32, op, world.comm(0), nullptr),
              whorlSuccess)
        << whorlGetLastError(world.comm(0));
    EXPECT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(std::vector<float>(values, values + 50), std::vector<float>(50, 6.0f));
  }
  whorlStream_t of_host = nullptr;
  ASSERT_EQ(whorlStreamCreate(&of_host), whorlSuccess);
  EXPECT_EQ(whorlAllReduce(pinned, pinned, 50, whorlFloat32, op, world.comm(0), of_host),
            whorlInvalidArgument);
  EXPECT_THAT(whorlGetLastError(world.comm(0)), HasSubstr("factor of the operator"));
  EXPECT_EQ(whorlStreamDestroy(of_host), whorlSuccess);
  EXPECT_EQ(whorlRedOpDestroy(op, world.comm(0)), whorlSuccess);
  EXPECT_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);
}

TEST(DeviceMemory, IsAllocatedWhereTheThreadComputes) {
  ThreadWorld world(1);
  void* memory = nullptr;
  EXPECT_EQ(whorlMemAllocDevice(&memory, 0), whorlSuccess);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(whorlMemAllocDevice(nullptr, 1), whorlInvalidArgument);
  EXPECT_EQ(whorlMemAllocDevice(&memory, 4096), whorlInvalidUsage);
  EXPECT_THAT(whorlGetLastError(nullptr), HasSubstr("no current CUDA context"));
  {
    const DeviceContext context;
    ASSERT_EQ(whorlMemAllocDevice(&memory, 4096), whorlSuccess) << whorlGetLastError(nullptr);
    CUipcMemHandle handle;
    EXPECT_EQ(cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(memory)), CUDA_SUCCESS);
    const DeviceQueue stream;
    EXPECT_EQ(
        whorlAllReduce(memory, memory, 1024, whorlFloat32, whorlSum, world.comm(0), stream.get()),
        whorlSuccess);
    stream.synchronize();
  }
  void* registration = &memory;
  EXPECT_EQ(whorlCommRegister(world.comm(0), memory, 4096, &registration), whorlSuccess);
  EXPECT_EQ(registration, nullptr);
  EXPECT_EQ(whorlCommDeregister(world.comm(0), registration), whorlSuccess);
  EXPECT_EQ(whorlMemFree(static_cast<std::byte*>(memory) + 1), whorlInvalidArgument);
  EXPECT_EQ(whorlMemFree(memory), whorlSuccess); // without a context
  unsigned type = 0;
  EXPECT_NE(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  reinterpret_cast<CUdeviceptr>(memory)),
            CUDA_SUCCESS);
  EXPECT_EQ(whorlMemFree(memory), whorlInvalidArgument);
}

TEST(DeviceMemory, KindsOfPointers) {
  const DeviceContext context;
  int on_stack = 0;
  void* pinned = nullptr;
  void* device = nullptr;
  CUdeviceptr managed = 0;
  ASSERT_EQ(cuMemHostAlloc(&pinned, 4096, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(whorlMemAllocDevice(&device, 4096), whorlSuccess);
  const auto kind_of = [](const void* pointer, int expected_device) {
    whorlMemoryKind_t kind = whorlMemoryHost;
    int number = 7;
    EXPECT_EQ(whorlPointerKind(pointer, &kind, &number), whorlSuccess);
    EXPECT_EQ(number, expected_device);
    return kind;
  };
  EXPECT_EQ(kind_of(&on_stack, -1), whorlMemoryHost);
  EXPECT_EQ(kind_of(pinned, 0), whorlMemoryPinned);
  EXPECT_EQ(kind_of(reinterpret_cast<void*>(managed), 0), whorlMemoryManaged);
  EXPECT_EQ(kind_of(static_cast<std::byte*>(device) + 100, 0), whorlMemoryDevice);
  EXPECT_EQ(whorlMemFree(device), whorlSuccess);
  EXPECT_EQ(cuMemFree(managed), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);
}

TEST(DeviceMemory, HostStreamsAreNotStreamsOfDevices) {
  const DeviceContext context;
  const DeviceQueue queue;
  whorlEvent_t event = nullptr;
  ASSERT_EQ(whorlEventCreate(&event), whorlSuccess);
  auto* const stream = reinterpret_cast<whorlStream_t>(queue.get());
  EXPECT_EQ(whorlEventRecord(event, stream), whorlInvalidArgument);
  EXPECT_THAT(whorlGetLastError(nullptr), HasSubstr("cudaEventRecord()"));
  EXPECT_EQ(whorlStreamWaitEvent(stream, event), whorlInvalidArgument);
  EXPECT_THAT(whorlGetLastError(nullptr), HasSubstr("whorlEventWait()"));
  EXPECT_EQ(whorlStreamAddCallback(
                stream, [](void*, whorlResult_t) {}, nullptr),
            whorlInvalidArgument);
  EXPECT_THAT(whorlGetLastError(nullptr), HasSubstr("cudaLaunchHostFunc()"));
  EXPECT_EQ(whorlEventDestroy(event), whorlSuccess);
}

TEST(DeviceMemory, PinnedPagesAreNotMovedByARegistration) {
  const DeviceContext context;
  ThreadWorld world(1);
  void* pinned = nullptr;
  ASSERT_EQ(cuMemHostAlloc(&pinned, 1 << 20, 0), CUDA_SUCCESS);
  void* registration = &pinned;
  EXPECT_EQ(whorlCommRegister(world.comm(0), pinned, 1 << 20, &registration), whorlSuccess);
  EXPECT_EQ(registration, nullptr);
  EXPECT_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);
}

TEST(DeviceErrors, AnAbsentRankIsNamedAndTheStreamGoesOn) {
  const ScopedEnv env{{"WHORL_TIMEOUT_MS", "300"}};
  const DeviceContext context;
  ThreadWorld world(2);
  const DeviceQueue stream;
  const DeviceCopy values(std::vector<float>(50, 1.0f), stream.get());
  // Ranks of one process meet in the call.
  EXPECT_EQ(whorlAllReduce(values.data(), values.data(), 50, whorlFloat32, whorlSum, world.comm(0),
                           stream.get()),
            whorlRemoteError);
  EXPECT_THAT(whorlGetLastError(world.comm(0)), HasSubstr("waiting for rank 1"));
  EXPECT_EQ(values.read<float>(stream.get())[0], 1.0f); // the late call changes nothing
  EXPECT_EQ(whorlAllReduce(values.data(), values.data(), 50, whorlFloat32, whorlSum, world.comm(1),
                           stream.get()),
            whorlRemoteError);
  EXPECT_EQ(values.read<float>(stream.get())[0], 1.0f);
}

TEST(DeviceErrors, AStreamThatHasBeenDestroyedIsNotTakenForOneOfTheDevice) {
  const DeviceContext context;
  ThreadWorld world(1);
  float value = 1;
  for (int round = 0; round < 2; ++round) {
    whorlStream_t stream = nullptr;
    ASSERT_EQ(whorlStreamCreate(&stream), whorlSuccess);
    EXPECT_EQ(whorlAllReduce(&value, &value, 1, whorlFloat32, whorlSum, world.comm(0), stream),
              whorlSuccess);
    EXPECT_EQ(whorlStreamDestroy(stream), whorlSuccess);
    EXPECT_EQ(whorlAllReduce(&value, &value, 1, whorlFloat32, whorlSum, world.comm(0), stream),
              whorlInvalidArgument);
    EXPECT_THAT(whorlGetLastError(nullptr), HasSubstr("that still exists"));
  }
}

TEST(DeviceErrors, AnOperationOfTheHostThatFailsLetsTheStreamGoOn) {
  const ScopedEnv env{{"WHORL_TIMEOUT_MS", "300"}};
  const DeviceContext context;
  ThreadWorld world(2);
  const DeviceQueue stream;
  const DeviceCopy values(std::vector<float>(50, 1.0f), stream.get());
  ASSERT_EQ(whorlSend(values.data(), 50, whorlFloat32, 1, world.comm(0), stream.get()),
            whorlSuccess);
  ASSERT_EQ(whorlRecv(values.data(), 50, whorlFloat32, 1, world.comm(0), stream.get()),
            whorlSuccess);
  stream.synchronize();
  whorlResult_t state = whorlSuccess;
  ASSERT_EQ(whorlCommGetAsyncError(world.comm(0), &state), whorlSuccess);
  EXPECT_EQ(state, whorlRemoteError);
  EXPECT_THAT(whorlGetLastError(world.comm(0)), HasSubstr("waiting for rank 1"));
}

TEST(DeviceErrors, RanksThatDisagreeAreTold) {
  run_on_device(2, [](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    const DeviceCopy values(std::vector<float>(50, 1.0f), stream.get());
    const std::size_t count = rank == 0 ? 50 : 49;
    EXPECT_EQ(whorlAllReduce(values.data(), values.data(), count, whorlFloat32, whorlSum, comm,
                             stream.get()),
              whorlInvalidUsage);
    EXPECT_THAT(whorlGetLastError(comm), HasSubstr("differ in count (50 here, 49 there)"));
    return {};
  });
}

TEST(DeviceErrors, ACaptureIsRefusedWhereTheHostDoesTheOperation) {
  const ScopedEnv env{{"WHORL_DEVICE_ALGO", "host"}};
  const DeviceContext context;
  ThreadWorld world(1);
  const DeviceQueue stream;
  const DeviceCopy values(std::vector<float>(50, 1.0f), stream.get());
  ASSERT_EQ(cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(whorlAllReduce(values.data(), values.data(), 50, whorlFloat32, whorlSum, world.comm(0),
                           stream.get()),
            whorlInvalidUsage);
  EXPECT_THAT(whorlGetLastError(nullptr), HasSubstr("captured into a graph"));
  end_capture(stream.get());
  EXPECT_EQ(whorlAllReduce(values.data(), values.data(), 50, whorlFloat32, whorlSum, world.comm(0),
                           stream.get()),
            whorlSuccess);
  EXPECT_EQ(values.read<float>(stream.get())[49], 1.0f);
}

TEST(DeviceErrors, ACaptureThatIsRefusedOnOneRankIsNoCall) {
  run_on_device(2, [](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    const DeviceCopy values(std::vector<float>(50, 1.0f), stream.get());
    const DeviceCopy factor(std::vector<float>{2.0f}, stream.get());
    whorlRedOp_t op = whorlSum; // operator without a kernel
    whorlRedOpCreatePreMulSum(&op, factor.data(), whorlFloat32, whorlScalarDevice, comm);
    const auto call = [&] {
      return whorlAllReduce(values.data(), values.data(), 50, whorlFloat32, op, comm, stream.get());
    };
    for (int round = 0; round < 3; ++round) {
      if (rank == 0) {
        EXPECT_EQ(cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
        EXPECT_EQ(call(), whorlInvalidUsage);
        end_capture(stream.get());
      }
      if (auto text = failure(call(), comm); !text.empty()) return text;
    }
    const auto got = values.read<float>(stream.get());
    whorlRedOpDestroy(op, comm);
    return got[49] == 64.0f ? "" : "got " + std::to_string(got[49]);
  });
}

TEST(DeviceErrors, ACaptureWhereAnotherRankIsOnTheHostIsToldToAll) {
  run_on_device(2, [](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    const DeviceCopy values(std::vector<float>(50, 1.0f), stream.get());
    std::vector<float> on_host(50, 1.0f);
    if (rank == 0) {
      EXPECT_EQ(cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    }
    void* const data = rank == 0 ? static_cast<void*>(values.data()) : on_host.data();
    const whorlResult_t result = whorlAllReduce(data, data, 50, whorlFloat32, whorlSum, comm,
                                                rank == 0 ? stream.get() : nullptr);
    // Rank 1 gets the error before it begins, or from rank 0.
    EXPECT_TRUE(result == whorlInvalidUsage || (rank == 1 && result == whorlRemoteError)) << result;
    EXPECT_THAT(whorlGetLastError(comm), HasSubstr("captured into a graph"));
    EXPECT_THAT(whorlGetLastError(comm), HasSubstr("rank 0"));
    if (rank == 0) end_capture(stream.get());
    return {};
  });
}

TEST(DeviceErrors, WhatTheDriverRefusesIsSaidAndNothingHasHappened) {
  const DeviceContext context;
  ThreadWorld world(2);
  const DeviceQueue first, second;
  const DeviceCopy a(std::vector<float>(50, 1.0f), first.get());
  const DeviceCopy b(std::vector<float>(50, 2.0f), second.get());
  const DeviceCopy c(std::vector<float>(50, 5.0f), first.get());
  const auto both = [&] {
    whorlGroupStart();
    whorlSend(a.data(), 50, whorlFloat32, 1, world.comm(0), first.get());
    whorlRecv(b.data(), 50, whorlFloat32, 0, world.comm(1), second.get());
    return whorlGroupEnd();
  };
  ASSERT_EQ(cuStreamBeginCapture(second.get(), CU_STREAM_CAPTURE_MODE_RELAXED),
            CUDA_SUCCESS); // after work was queued in the first stream
  EXPECT_EQ(both(), whorlInvalidUsage);
  end_capture(second.get());
  first.synchronize(); // the first stream does not hang
  EXPECT_EQ(b.read<float>(second.get())[0], 2.0f);
  EXPECT_EQ(both(), whorlSuccess);
  EXPECT_EQ(b.read<float>(second.get())[0], 1.0f);

  whorlGroupStart(); // now the first stream's buffer is the receiver's
  whorlRecv(c.data(), 50, whorlFloat32, 1, world.comm(0), first.get());
  whorlSend(b.data(), 50, whorlFloat32, 0, world.comm(1), second.get());
  ASSERT_EQ(cuStreamBeginCapture(second.get(), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(whorlGroupEnd(), whorlInvalidUsage);
  end_capture(second.get());
  EXPECT_EQ(c.read<float>(first.get()), std::vector<float>(50, 5.0f));
}

} // namespace
} // namespace whorl::test
