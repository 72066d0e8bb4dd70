// Tests of calls by ranks of one process that form one operation on a device: what they wait for,
// and what runs meanwhile. Built with a pretended device, see tests/support/fake_cuda; with the
// real driver first in LD_LIBRARY_PATH it runs on a real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/device.h"
#include "tests/support/device_graph.h"
#include "tests/support/pretended_device.h"
#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Barrier that holds streams until the host opens it.
class Barrier {
 public:
  Barrier() {
    EXPECT_EQ(cuMemAlloc(&word_, 4), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD8Async(word_, 0, 4, opener_.get()), CUDA_SUCCESS);
    opener_.synchronize();
  }
  ~Barrier() {
    open();
    EXPECT_EQ(cuMemFree(word_), CUDA_SUCCESS);
  }
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;
  void hold(CUstream stream) const {
    EXPECT_EQ(cuStreamWaitValue32(stream, word_, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  }
  void open() const {
    EXPECT_EQ(cuStreamWriteValue32(opener_.get(), word_, 1, CU_STREAM_WRITE_VALUE_DEFAULT),
              CUDA_SUCCESS);
    opener_.synchronize();
  }

 private:
  DeviceQueue opener_;
  CUdeviceptr word_ = 0;
};

void sum(const DeviceCopy& values, std::size_t count, whorlComm_t comm, const DeviceQueue& stream) {
  EXPECT_EQ(whorlAllReduce(values.data(), values.data(), count, whorlFloat32, whorlSum, comm,
                           stream.get()),
            whorlSuccess);
}

TEST(DeviceGroupCalls, WaitForTheirOwnStreams) {
  constexpr std::size_t kCount = 100;
  const DeviceContext context;
  ThreadWorld world(2);
  struct Rank {
    DeviceQueue held, free;
    DeviceCopy first{std::vector<float>(kCount, 0.0f), held.get()};
    DeviceCopy second{std::vector<float>(kCount, 2.0f), free.get()};
  } ranks[2];
  const DeviceCopy late(std::vector<float>(kCount, 1.0f), ranks[0].held.get());
  const Barrier barrier;
  // The first call's input is late; the second call does not depend on it.
  barrier.hold(ranks[0].held.get());
  ASSERT_EQ(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(ranks[0].first.data()),
                          reinterpret_cast<CUdeviceptr>(late.data()), kCount * sizeof(float),
                          ranks[0].held.get()),
            CUDA_SUCCESS);
  whorlGroupStart();
  for (int rank = 0; rank < 2; ++rank) {
    sum(ranks[rank].first, kCount, world.comm(rank), ranks[rank].held);
    sum(ranks[rank].second, kCount, world.comm(rank), ranks[rank].free);
  }
  ASSERT_EQ(whorlGroupEnd(), whorlSuccess) << whorlGetLastError(nullptr);
  for (const Rank& rank : ranks) {
    EXPECT_EQ(rank.second.read<float>(rank.free.get()), std::vector<float>(kCount, 4.0f));
    EXPECT_EQ(cuStreamQuery(rank.held.get()), CUDA_ERROR_NOT_READY);
  }
  barrier.open();
  for (const Rank& rank : ranks) {
    EXPECT_EQ(rank.first.read<float>(rank.held.get()), std::vector<float>(kCount, 1.0f));
  }
}

void expect_failure_after_leaving(bool captured) {
  const ScopedEnv patience{{"WHORL_TIMEOUT_MS", "2000"}};
  const DeviceContext context;
  whorlComm_t comms[2] = {};
  ASSERT_EQ(whorlCommInitAll(comms, 2, nullptr), whorlSuccess) << whorlGetLastError(nullptr);
  const DeviceQueue stream;
  const DeviceCopy a(std::vector<float>(10, 1.0f), stream.get());
  const DeviceCopy b(std::vector<float>(10, 1.0f), stream.get());
  whorlGroupStart();
  sum(a, 10, comms[0], stream);
  sum(b, 10, comms[1], stream);
  EXPECT_EQ(failure(whorlGroupEnd()), "");
  EXPECT_EQ(whorlCommDestroy(comms[1]), whorlSuccess);
  if (captured) {
    ASSERT_EQ(cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  }
  // The call or the stream gets the error.
  static_cast<void>(
      whorlAllReduce(a.data(), a.data(), 10, whorlFloat32, whorlSum, comms[0], stream.get()));
  whorlResult_t state = whorlSuccess;
  for (int i = 0; i < 1000 && state == whorlSuccess; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(whorlCommGetAsyncError(comms[0], &state), whorlSuccess);
  }
  EXPECT_THAT(whorlGetLastError(comms[0]), HasSubstr("has destroyed its communicator"));
  CUgraph graph = nullptr;
  if (captured && cuStreamEndCapture(stream.get(), &graph) == CUDA_SUCCESS) {
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  }
  EXPECT_EQ(whorlCommDestroy(comms[0]), whorlSuccess);
}

TEST(DeviceGroupCalls, AfterARankHasLeftFailAtOnce) { expect_failure_after_leaving(false); }
TEST(DeviceGroupCalls, OfACaptureFailAtOnceAfterARankHasLeft) {
  expect_failure_after_leaving(true);
}

TEST(DeviceGroupCalls, InStreamsOfSeveralThreadsWaitForAll) {
  constexpr std::size_t kCount = 100;
  const DeviceContext context;
  ThreadWorld world(2);
  const DeviceCopy late(std::vector<float>(kCount, 1.0f), nullptr);
  const DeviceCopy values[] = {{std::vector<float>(kCount, 0.0f), nullptr},
                               {std::vector<float>(kCount, 2.0f), nullptr}};
  const Barrier barrier;
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    const DeviceContext own;
    const CUstream stream = CU_STREAM_PER_THREAD;
    const DeviceCopy& mine = values[rank];
    if (rank == 0) {
      barrier.hold(stream);
      EXPECT_EQ(
          cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(mine.data()),
                        reinterpret_cast<CUdeviceptr>(late.data()), kCount * sizeof(float), stream),
          CUDA_SUCCESS);
    } else { // so that this rank's thread is the one that decides
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    const auto result =
        whorlAllReduce(mine.data(), mine.data(), kCount, whorlFloat32, whorlSum, comm, stream);
    if (result != whorlSuccess) return failure(result, comm);
    if (rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20)); // for a kernel that does not wait
      barrier.open();
    }
    return mine.read<float>(stream) == std::vector<float>(kCount, 3.0f) ? "" : "wrong values";
  });
}

TEST(DeviceGroupCalls, InTheStreamOfOneThreadAreOfTheDevice) {
  if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  const DeviceContext context;
  const ThreadWorld world(2);
  const CUstream stream = CU_STREAM_PER_THREAD;
  const DeviceCopy a(std::vector<float>(10, 1.0f), stream), b(std::vector<float>(10, 2.0f), stream);
  const long before = launches();
  whorlGroupStart();
  for (const int rank : {0, 1}) {
    void* const values = rank == 0 ? a.data() : b.data();
    EXPECT_EQ(whorlAllReduce(values, values, 10, whorlFloat32, whorlSum, world.comm(rank), stream),
              whorlSuccess);
  }
  ASSERT_EQ(whorlGroupEnd(), whorlSuccess) << whorlGetLastError(nullptr);
  EXPECT_EQ(b.read<float>(stream), std::vector<float>(10, 3.0f));
  EXPECT_GT(launches(), before);
}

TEST(DeviceGroupCalls, InACapturedStreamOfAnotherThreadAreRefused) {
  const DeviceContext context;
  ThreadWorld world(2);
  const DeviceCopy values[] = {{std::vector<float>(10), nullptr},
                               {std::vector<float>(10), nullptr}};
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    const DeviceContext own;
    const CUstream stream = CU_STREAM_PER_THREAD;
    const auto call = [&] {
      EXPECT_EQ(whorlAllReduce(values[rank].data(), values[rank].data(), 10, whorlFloat32, whorlSum,
                               comm, stream),
                whorlInvalidUsage);
      EXPECT_THAT(whorlGetLastError(comm), StartsWith("rank 0"));
      EXPECT_THAT(whorlGetLastError(comm), HasSubstr("cudaStreamPerThread of different threads"));
    };
    if (rank == 0) {
      const DeviceGraph graph(stream, call, CU_STREAM_CAPTURE_MODE_RELAXED);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      call();
    }
    return {};
  });
}

TEST(DeviceGroupCalls, OfRanksOfWhichOneIsCapturedAreRefused) {
  const DeviceContext context;
  for (const int captured : {0, 1}) {
    ThreadWorld world(2);
    const DeviceQueue streams[2];
    const DeviceCopy a(std::vector<float>(10, 1.0f), streams[0].get());
    const DeviceCopy b(std::vector<float>(10, 2.0f), streams[1].get());
    CUgraph graph = nullptr;
    ASSERT_EQ(cuStreamBeginCapture(streams[captured].get(), CU_STREAM_CAPTURE_MODE_GLOBAL),
              CUDA_SUCCESS);
    whorlGroupStart();
    sum(a, 10, world.comm(0), streams[0]);
    sum(b, 10, world.comm(1), streams[1]);
    EXPECT_EQ(whorlGroupEnd(), whorlInvalidUsage);
    EXPECT_EQ(cuStreamEndCapture(streams[captured].get(), &graph), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    for (int rank = 0; rank < 2; ++rank) {
      const std::string text = whorlGetLastError(world.comm(rank));
      EXPECT_THAT(text, StartsWith("rank " + std::to_string(captured)));
      EXPECT_THAT(text, HasSubstr("in allreduce of 10 float32 (sum): its stream is being captured "
                                  "into a graph, that of rank " +
                                  std::to_string(1 - captured)));
      EXPECT_THAT(text, HasSubstr("or capture none of them"));
    }
    EXPECT_EQ(a.read<float>(streams[0].get()), std::vector<float>(10, 1.0f));
    EXPECT_EQ(b.read<float>(streams[1].get()), std::vector<float>(10, 2.0f));
  }
}

/// Calls of two ranks that a capture does not allow, and that must leave the capture valid.
class DeviceGroupCaptures : public ::testing::Test {
 protected:
  whorlResult_t call(CUstream stream) {
    whorlGroupStart();
    for (int rank = 0; rank < 2; ++rank) {
      const DeviceCopy& values = rank == 0 ? a_ : b_;
      whorlAllReduce(values.data(), values.data(), 10, whorlFloat32, whorlSum, world_.comm(rank),
                     stream);
    }
    return whorlGroupEnd();
  }
  void expect_to_work(CUstream stream) {
    EXPECT_EQ(failure(call(stream)), "");
    EXPECT_EQ(a_.read<float>(stream), std::vector<float>(10, 3.0f));
    EXPECT_EQ(b_.read<float>(stream), std::vector<float>(10, 3.0f));
  }

  const DeviceContext context_;
  ThreadWorld world_{2};
  const DeviceQueue stream_;
  const DeviceCopy a_{std::vector<float>(10, 1.0f), stream_.get()};
  const DeviceCopy b_{std::vector<float>(10, 2.0f), stream_.get()};
};

TEST_F(DeviceGroupCaptures, ThatAreSpoiltRefuseIt) {
  const DeviceQueue other;
  CUevent event = nullptr;
  CUgraph graph = nullptr;
  ASSERT_EQ(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCapture(stream_.get(), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, other.get()), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(stream_.get(), event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(call(stream_.get()), whorlUnhandledCudaError);
  EXPECT_EQ(cuStreamEndCapture(stream_.get(), &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
  expect_to_work(stream_.get());
}

TEST_F(DeviceGroupCaptures, WithWhichTheDefaultStreamSynchronisesRefuseIt) {
  CUstream blocking = nullptr;
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(call(nullptr), whorlUnhandledCudaError);
  EXPECT_EQ(cuStreamEndCapture(blocking, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamDestroy(blocking), CUDA_SUCCESS);
  expect_to_work(nullptr);
}

TEST(DeviceGroupCalls, ThatTheHostIsToServeAreRefusedInACapture) {
  const ScopedEnv asked{{"WHORL_DEVICE_ALGO", "host"}};
  const DeviceContext context;
  ThreadWorld world(1);
  const DeviceQueue stream;
  const DeviceCopy values(std::vector<float>(10, 1.0f), stream.get());
  const auto call = [&] {
    return whorlAllReduce(values.data(), values.data(), 10, whorlFloat32, whorlSum, world.comm(0),
                          stream.get());
  };
  {
    const DeviceGraph empty(stream.get(), [&] { EXPECT_EQ(call(), whorlInvalidUsage); });
  }
  EXPECT_EQ(failure(call(), world.comm(0)), "");
  stream.synchronize();
  whorlResult_t state = whorlInternalError;
  EXPECT_EQ(whorlCommGetAsyncError(world.comm(0), &state), whorlSuccess);
  EXPECT_EQ(state, whorlSuccess) << whorlGetLastError(world.comm(0));
}

// Checks memory of a pool, which kernels can access on its own device only.
TEST(DeviceGroupCalls, OnAPoolOfAnotherDeviceAreServedByTheHost) {
  if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  const ScopedEnv two{{"FAKE_CUDA_DEVICES", "2"}};
  constexpr std::size_t kBytes = 400;
  CUdeviceptr pool = 0;
  {
    const DeviceContext other(1);
    const DeviceQueue stream;
    ASSERT_EQ(cuMemAllocAsync(&pool, kBytes, stream.get()), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD8Async(pool, 0, kBytes, stream.get()), CUDA_SUCCESS);
    stream.synchronize();
  }
  const DeviceContext context;
  ThreadWorld world(1);
  const DeviceQueue stream;
  const DeviceCopy values(std::vector<float>(100, 3.0f), stream.get());
  const long before = launches();
  EXPECT_EQ(whorlAllReduce(values.data(), reinterpret_cast<void*>(pool), 100, whorlFloat32,
                           whorlSum, world.comm(0), stream.get()),
            whorlSuccess);
  stream.synchronize();
  EXPECT_EQ(launches(), before);
}

// Checks that only first calls may wait for the program's streams: afterwards every kernel has been
// loaded, even those never launched, and memory has been allocated.
TEST(DeviceGroupCalls, MayWaitForStreamsOnlyAtFirst) {
  if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  const DeviceContext context;
  for (const char* const way : {"fused", "schedule", "host"}) {
    SCOPED_TRACE(way);
    const ScopedEnv asked{{"WHORL_DEVICE_ALGO", way}, {"WHORL_SEGMENT_BYTES", "65536"}};
    constexpr std::size_t kCount = 100'000;
    ThreadWorld world(2);
    const DeviceQueue streams[2];
    const DeviceCopy values[2] = {{std::vector<float>(kCount, 0.0f), streams[0].get()},
                                  {std::vector<float>(kCount, 0.0f), streams[1].get()}};
    const auto run = [&](whorlDataType_t type, whorlRedOp_t op) {
      whorlGroupStart();
      for (int rank = 0; rank < 2; ++rank) {
        whorlAllReduce(values[rank].data(), values[rank].data(), kCount, type, op, world.comm(rank),
                       streams[rank].get());
      }
      EXPECT_EQ(whorlGroupEnd(), whorlSuccess) << whorlGetLastError(nullptr);
      for (const DeviceQueue& stream : streams) stream.synchronize();
    };
    run(whorlFloat32, whorlSum);
    const long before = calls_that_may_wait();
    for (const auto op : {whorlSum, whorlMax, whorlMin, whorlProd}) {
      run(whorlFloat32, op);
      run(whorlInt8, op);
    }
    EXPECT_EQ(calls_that_may_wait(), before);
  }
}

} // namespace
} // namespace whorl::test
