// Tests of contexts and default streams: a device that is reset, threads without a context, streams
// that wait for each other, captures of every call. Built with a pretended device, see
// tests/support/fake_cuda; with the real driver first in LD_LIBRARY_PATH it runs on a real device.
// A separate program, because it resets the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "memory/heap.h"
#include "tests/support/device.h"
#include "tests/support/device_processes.h"
#include "tests/support/pretended_device.h"
#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;

/// Scope in which a device's primary context is current; its end resets the context, so that later
/// tests start without any state of whorl.
class FreshContext {
 public:
  explicit FreshContext(int ordinal = 0) {
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(cuDeviceGet(&device_, ordinal), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context_, device_), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxPushCurrent(context_), CUDA_SUCCESS);
  }
  ~FreshContext() {
    CUcontext context = nullptr;
    EXPECT_EQ(cuCtxPopCurrent(&context), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(device_), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxReset(device_), CUDA_SUCCESS);
  }
  FreshContext(const FreshContext&) = delete;
  FreshContext& operator=(const FreshContext&) = delete;
  CUcontext get() const { return context_; }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

/// Makes communicators where no context is current, so that no kernels are loaded early.
std::unique_ptr<ThreadWorld> cold_world(int nranks) {
  return std::async(std::launch::async, [&] { return std::make_unique<ThreadWorld>(nranks); })
      .get();
}

/// Sums as one thread that acts for two ranks.
void sum_of_two(const ThreadWorld& world, const DeviceCopy& a, const DeviceCopy& b,
                std::size_t count, CUstream first, CUstream second) {
  whorlGroupStart();
  whorlAllReduce(a.data(), a.data(), count, whorlFloat32, whorlSum, world.comm(0), first);
  whorlAllReduce(b.data(), b.data(), count, whorlFloat32, whorlSum, world.comm(1), second);
  EXPECT_EQ(whorlGroupEnd(), whorlSuccess) << whorlGetLastError(nullptr);
}

/// Transfers from rank 0 to rank 1, through the host.
void transfer(const ThreadWorld& world, const DeviceCopy& from, const DeviceCopy& to,
              std::size_t count, CUstream first, CUstream second) {
  whorlGroupStart();
  whorlSend(from.data(), count, whorlFloat32, 1, world.comm(0), first);
  whorlRecv(to.data(), count, whorlFloat32, 0, world.comm(1), second);
  EXPECT_EQ(whorlGroupEnd(), whorlSuccess) << whorlGetLastError(nullptr);
}

TEST(DeviceContexts, ADeviceThatHasBeenResetIsUsedAnew) {
  const ScopedEnv env{{"WHORL_SEGMENT_BYTES", "16384"}, {"WHORL_SLOT_BYTES", "1024"}};
  for (int life = 0; life < 3; ++life) {
    const FreshContext context;
    ThreadWorld world(2);
    const DeviceQueue first, second;
    const DeviceCopy a(std::vector<float>(50'000, 1.0f), first.get());
    const DeviceCopy b(std::vector<float>(50'000, 2.0f), second.get());
    sum_of_two(world, a, b, 50'000, first.get(), second.get());
    EXPECT_EQ(b.read<float>(second.get()), std::vector<float>(50'000, 3.0f));
    const DeviceCopy c(std::vector<float>(50'000, 4.0f), first.get());
    transfer(world, c, b, 50'000, first.get(), second.get());
    EXPECT_EQ(b.read<float>(second.get()), std::vector<float>(50'000, 4.0f));
    transfer(world, c, a, 50'000, nullptr, nullptr);
    EXPECT_EQ(a.read<float>(nullptr), std::vector<float>(50'000, 4.0f));
    first.synchronize();
  }
}

TEST(DeviceContexts, ThatHasBeenResetIsNotTouchedByTheEndOfACommunicator) {
  if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  for (const char* const algo : {"fused", "schedule"}) {
    const ScopedEnv env{{"WHORL_DEVICE_ALGO", algo}};
    std::unique_ptr<ThreadWorld> world;
    {
      const FreshContext context;
      world = std::make_unique<ThreadWorld>(2);
      const DeviceQueue first, second;
      const DeviceCopy a(std::vector<float>(50, 1.0f), first.get());
      const DeviceCopy b(std::vector<float>(50, 2.0f), second.get());
      const auto kernels = [] { return launches() + interpreter_launches(); };
      const long before = kernels();
      sum_of_two(*world, a, b, 50, first.get(), second.get());
      EXPECT_GT(kernels(), before);
      first.synchronize();
      second.synchronize();
    }
    const FreshContext next; // has the same handle
    const long before = stale_calls();
    world.reset();
    EXPECT_EQ(stale_calls(), before) << algo;
  }
}

TEST(DeviceContexts, AThreadWithoutOneUsesThatOfTheBuffer) {
  const FreshContext context;
  ThreadWorld world(1);
  const DeviceCopy values(std::vector<float>(100, 2.0f), nullptr);
  CUdeviceptr pool = 0;
  ASSERT_EQ(cuMemAllocAsync(&pool, 400, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  std::thread([&] {
    for (const auto stream : {CUstream{nullptr}, CU_STREAM_LEGACY}) {
      EXPECT_EQ(whorlAllReduce(values.data(), reinterpret_cast<void*>(pool), 100, whorlFloat32,
                               whorlSum, world.comm(0), stream),
                whorlSuccess)
          << whorlGetLastError(world.comm(0));
    }
    float on_host = 1;
    EXPECT_EQ(whorlAllReduce(&on_host, &on_host, 1, whorlFloat32, whorlSum, world.comm(0),
                             CU_STREAM_LEGACY),
              whorlSuccess);
    CUcontext current = nullptr;
    EXPECT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, nullptr);
  }).join();
  std::vector<float> got(100);
  ASSERT_EQ(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(got.data()), pool, 400, nullptr),
            CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(got, std::vector<float>(100, 2.0f));
}

// Uses the host, which has memory for each stream: kernels of two devices would have to end on both
// before either device is reset.
TEST(DeviceContexts, EachHasItsDefaultStream) {
  const ScopedEnv env{{"WHORL_DEVICE_ALGO", "host"}};
  int devices = 0;
  if (device_is_pretended()) setenv("FAKE_CUDA_DEVICES", "2", 1);
  ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
  ASSERT_EQ(cuDeviceGetCount(&devices), CUDA_SUCCESS);
  if (devices < 2) GTEST_SKIP() << "one device";
  ThreadWorld world(2);
  std::vector<float> got[2];
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    const FreshContext own(rank);
    const DeviceCopy values(std::vector<float>(1000, 1.5f), nullptr);
    const auto result =
        whorlAllReduce(values.data(), values.data(), 1000, whorlFloat32, whorlSum, comm, nullptr);
    got[rank] = values.read<float>(nullptr);
    return failure(result, comm);
  });
  for (const auto& values : got) EXPECT_EQ(values, std::vector<float>(1000, 3.0f));
}

/// Captures the work of `body`, in the mode that torch.cuda.graph uses: no thread may make a call
/// that could be meant for the graph.
void capture(CUstream stream, const std::function<void()>& body) {
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  body();
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST(DeviceCaptures, MayBeTheFirstUseOfADevice) {
  const FreshContext context;
  const auto world = cold_world(2);
  const DeviceQueue stream;
  const DeviceCopy a(std::vector<float>(50, 1.0f), stream.get());
  const DeviceCopy b(std::vector<float>(50, 2.0f), stream.get());
  capture(stream.get(), [&] { sum_of_two(*world, a, b, 50, stream.get(), stream.get()); });
}

TEST(DeviceCaptures, AreNotSpoiltByACallThatIsRefused) {
  const FreshContext context;
  const auto world = cold_world(2);
  const DeviceQueue stream, other;
  const DeviceCopy a(std::vector<float>(50, 1.0f), stream.get());
  const DeviceCopy b(std::vector<float>(50, 2.0f), stream.get());
  capture(stream.get(), [&] {
    EXPECT_EQ(whorlSend(a.data(), 50, whorlFloat32, 1, world->comm(0), stream.get()),
              whorlInvalidUsage);
    EXPECT_THAT(whorlGetLastError(nullptr), HasSubstr("captured into a graph"));
  });
  transfer(*world, a, b, 50, stream.get(), other.get());
  EXPECT_EQ(b.read<float>(other.get())[49], 1.0f);
}

TEST(DeviceCaptures, AreNotSpoiltByTheFirstOperationsOfAnotherThread) {
  const ScopedEnv env{{"WHORL_SEGMENT_BYTES", "16384"}, {"WHORL_SLOT_BYTES", "1024"}};
  const FreshContext context;
  const auto world = cold_world(2);
  const DeviceQueue captured, stream;
  const DeviceCopy a(std::vector<float>(50'000, 1.0f), stream.get());
  const DeviceCopy b(std::vector<float>(50'000, 2.0f), stream.get());
  capture(captured.get(), [&] {
    std::thread([&] {
      EXPECT_EQ(cuCtxPushCurrent(context.get()), CUDA_SUCCESS);
      sum_of_two(*world, a, b, 50, stream.get(), stream.get());
      transfer(*world, a, b, 50'000, stream.get(), stream.get());
      void* memory = nullptr;
      EXPECT_EQ(whorlMemAllocDevice(&memory, 4096), whorlSuccess);
      EXPECT_EQ(whorlMemFree(memory), whorlSuccess);
    }).join();
  });
  EXPECT_EQ(b.read<float>(stream.get())[49'999], 1.0f);
}

// Checks an error path near a capture: a query of the default stream concerns all streams that
// synchronise with it.
TEST(DeviceCaptures, AreNotSpoiltByAnErrorOfAnotherThread) {
  if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  const ScopedEnv env{{"WHORL_SEGMENT_BYTES", "0"}};
  const FreshContext context;
  const auto world = cold_world(2);
  const DeviceQueue stream, other;
  const DeviceCopy a(std::vector<float>(50, 1.0f), stream.get());
  const DeviceCopy b(std::vector<float>(50, 2.0f), stream.get());
  CUstream blocking = nullptr;
  ASSERT_EQ(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  capture(blocking, [&] {
    std::thread([&] {
      EXPECT_EQ(cuCtxPushCurrent(context.get()), CUDA_SUCCESS);
      allow_copies(0);
      EXPECT_EQ(whorlSend(a.data(), 50, whorlFloat32, 1, world->comm(0), stream.get()),
                whorlUnhandledCudaError);
      allow_copies(-1);
    }).join();
  });
  EXPECT_EQ(cuStreamDestroy(blocking), CUDA_SUCCESS);
  transfer(*world, a, b, 50, stream.get(), other.get());
  EXPECT_EQ(b.read<float>(other.get())[49], 1.0f);
}

TEST(DeviceStreams, OfAGroupMayWaitForEachOther) {
  const ScopedEnv env{{"WHORL_TIMEOUT_MS", "10000"}};
  const FreshContext context;
  ThreadWorld world(2);
  CUstream blocking = nullptr; // synchronises with the default stream
  ASSERT_EQ(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  const DeviceCopy a(std::vector<float>(50, 1.0f), nullptr);
  const DeviceCopy b(std::vector<float>(50, 2.0f), nullptr);
  for (int round = 0; round < 4; ++round) {
    const bool turned = round % 2 == 1;
    transfer(world, a, b, 50, turned ? blocking : nullptr, turned ? nullptr : blocking);
    EXPECT_EQ(b.read<float>(nullptr)[49], 1.0f);
  }
  whorlResult_t state = whorlSuccess;
  EXPECT_EQ(whorlCommGetAsyncError(world.comm(0), &state), whorlSuccess);
  EXPECT_EQ(state, whorlSuccess) << whorlGetLastError(world.comm(0));
  EXPECT_EQ(cuStreamDestroy(blocking), CUDA_SUCCESS);
}

TEST(DeviceStreams, ACallThatNeedsMoreMemoryWaitsForNoStream) {
  const ScopedEnv env{{"WHORL_TIMEOUT_MS", "10000"}, {"WHORL_SEGMENT_BYTES", "0"}};
  const FreshContext context;
  ThreadWorld world(2);
  const DeviceQueue first, second;
  constexpr std::size_t kCount = 3 << 20;
  const DeviceCopy a(std::vector<float>(kCount, 1.0f), first.get());
  const DeviceCopy b(std::vector<float>(kCount, 2.0f), second.get());
  transfer(world, a, b, 10, first.get(), second.get());
  first.synchronize();
  second.synchronize();
  ASSERT_EQ(whorlSend(a.data(), kCount, whorlFloat32, 1, world.comm(0), first.get()), whorlSuccess);
  ASSERT_EQ(whorlRecv(b.data(), kCount, whorlFloat32, 0, world.comm(1), second.get()),
            whorlSuccess);
  EXPECT_EQ(b.read<float>(second.get())[kCount - 1], 1.0f);
}

TEST(DeviceStreams, ThatHaveBeenDestroyedKeepNoMemory) {
  const FreshContext context;
  ThreadWorld world(2);
  const DeviceQueue setup;
  constexpr std::size_t kCount = 1 << 20;
  const DeviceCopy a(std::vector<float>(kCount, 1.0f), setup.get());
  const DeviceCopy b(std::vector<float>(kCount, 2.0f), setup.get());
  std::size_t after_first = 0;
  for (int round = 0; round < 12; ++round) {
    const DeviceQueue first, second;
    transfer(world, a, b, kCount, first.get(), second.get());
    first.synchronize();
    second.synchronize();
    if (round == 1) after_first = heap_bytes();
  }
  EXPECT_EQ(heap_bytes(), after_first);
}

TEST(DeviceKernels, TheHostStandsInWhereTheyCannotBeLoaded) {
  if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  const FreshContext context;
  const auto world = cold_world(2);
  refuse_modules(1);
  const DeviceQueue first, second;
  const DeviceCopy a(std::vector<float>(50, 1.0f), first.get());
  const DeviceCopy b(std::vector<float>(50, 2.0f), second.get());
  for (int round = 0; round < 2; ++round) { // the library does not try again
    const long before = launches();
    sum_of_two(*world, a, b, 50, first.get(), second.get());
    EXPECT_EQ(launches(), before);
  }
  EXPECT_EQ(b.read<float>(second.get()), std::vector<float>(50, 6.0f));
  first.synchronize();
}

// Checks a driver call that waits for a stream with an operation of the host, whose thread asks for
// the communicator's state meanwhile.
TEST(DeviceKernels, TheStateOfACommunicatorIsKnownWhileTheDriverWaits) {
  if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  const ScopedEnv asked{{"WHORL_DEVICE_ALGO", "schedule"}};
  const FreshContext context;
  const auto world = cold_world(2);
  const DeviceQueue first, second, busy;
  const DeviceCopy a(std::vector<float>(50, 1.0f), first.get());
  const DeviceCopy b(std::vector<float>(50, 2.0f), second.get());
  StreamBarrier barrier(busy.get());
  std::thread caller([&] {
    EXPECT_EQ(cuCtxPushCurrent(context.get()), CUDA_SUCCESS);
    sum_of_two(*world, a, b, 50, first.get(), second.get());
  });
  while (waiting_in_driver() == 0) std::this_thread::yield();
  whorlResult_t state = whorlInternalError;
  auto asks = std::async(std::launch::async, [&] {
    EXPECT_EQ(whorlCommGetAsyncError(world->comm(0), &state), whorlSuccess);
  });
  EXPECT_EQ(asks.wait_for(std::chrono::seconds(5)), std::future_status::ready);
  barrier.open();
  caller.join();
  asks.wait();
  EXPECT_EQ(state, whorlSuccess);
  EXPECT_EQ(b.read<float>(second.get()), std::vector<float>(50, 3.0f));
  first.synchronize();
}

} // namespace
} // namespace whorl::test
