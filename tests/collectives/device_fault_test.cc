// Tests of a program's kernel that fails on a pretended device: from then on the driver refuses
// every call in that process, and queued work is dropped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/device_graph.h"
#include "tests/support/device_processes.h"
#include "tests/support/pretended_device.h"

namespace whorl::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kCount = 60'000;

/// Matches the sentence of a lost device.
auto names_fault_of(const std::string& rank) {
  return AllOf(HasSubstr(rank), HasSubstr("CUDA device 0 has failed"),
               HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
}

/// Returns device memory that is leaked, since it cannot be freed once the device is lost.
float* ones(CUstream stream) {
  return (new DeviceCopy(std::vector<float>(kCount, 1.0f), stream))->data<float>();
}

whorlResult_t all_reduce(float* values, whorlComm_t comm, CUstream stream) {
  return whorlAllReduce(values, values, kCount, whorlFloat32, whorlSum, comm, stream);
}

struct Way {
  const char* name;
  Environment environment;
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

/// Paths by which processes carry out an operation on one device.
class DeviceFault : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, DeviceFault,
                         ::testing::Values(Way{"Shared", {}},
                                           Way{"ByTheHost", {{"WHORL_DEVICE_IPC", "0"}}},
                                           Way{"InSegments",
                                               {{"WHORL_DEVICE_IPC", "0"},
                                                {"WHORL_SEGMENT_BYTES", "16384"},
                                                {"WHORL_SLOT_BYTES", "1024"}}}),
                         [](const auto& way) { return std::string(way.param.name); });

TEST_P(DeviceFault, OfAKernelEndsWhatIsQueuedBehindIt) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    float* const values = ones(stream.get());
    std::unique_ptr<StreamBarrier> barrier;
    if (context.rank == 1) {
      barrier = std::make_unique<StreamBarrier>(stream.get());
      queue_fault(stream.get());
    }
    for (int i = 0; i < 3; ++i)
      ASSERT_EQ(failure(all_reduce(values, comm, stream.get()), comm), "");
    context.barrier(); // all ranks have queued all operations
    if (barrier) barrier->open();
    EXPECT_THAT(error_of(comm), names_fault_of("rank 1"));
    if (context.rank == 0) {
      stream.synchronize(); // the stream continues
    } else {
      EXPECT_EQ(all_reduce(values, comm, stream.get()), whorlUnhandledCudaError);
      EXPECT_THAT(whorlGetLastError(comm), names_fault_of("rank 1"));
    }
  };
  EXPECT_EQ(run_world(2, body, GetParam().environment), "");
}

TEST_P(DeviceFault, DoesNotHoldAnAbortUp) {
  const auto outcomes = run_ranks(2, Mode::kProcesses, [&](RankContext& context) {
    const DeviceContext device;
    whorlComm_t comm = join(context, GetParam().environment);
    const DeviceQueue stream;
    float* const values = ones(stream.get());
    std::unique_ptr<StreamBarrier> barrier;
    if (context.rank == 1) {
      barrier = std::make_unique<StreamBarrier>(stream.get());
      queue_fault(stream.get());
    }
    ASSERT_EQ(failure(all_reduce(values, comm, stream.get()), comm), "");
    context.barrier();
    if (context.rank == 1) {
      std::thread opener([&] { // the abort waits for the program's queued work
        context.barrier();
        barrier->open();
      });
      EXPECT_EQ(whorlCommAbort(comm), whorlSuccess);
      opener.join();
    } else {
      EXPECT_THAT(error_of(comm), HasSubstr("rank 1"));
      stream.synchronize();
      context.barrier();
      EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
    }
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST_P(DeviceFault, IsToldToAllRanksByTheNextCall) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    float* const values = ones(stream.get());
    ASSERT_EQ(failure(all_reduce(values, comm, stream.get()), comm), "");
    stream.synchronize();
    if (context.rank == 1) {
      queue_fault(stream.get());
      EXPECT_EQ(cuStreamSynchronize(stream.get()), CUDA_ERROR_ILLEGAL_ADDRESS);
      EXPECT_EQ(all_reduce(values, comm, nullptr), whorlUnhandledCudaError);
      EXPECT_EQ(all_reduce(values, comm, stream.get()), whorlUnhandledCudaError);
      EXPECT_THAT(whorlGetLastError(comm), HasSubstr("CUDA device 0 has failed"));
    } else {
      static_cast<void>(all_reduce(values, comm, stream.get()));
      EXPECT_THAT(error_of(comm), names_fault_of("rank 1"));
      stream.synchronize();
    }
  };
  EXPECT_EQ(run_world(2, body, GetParam().environment), "");
}

TEST_P(DeviceFault, WhileAnOperationGoesOnEndsIt) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream, other;
    float* const values = ones(stream.get());
    ASSERT_EQ(failure(all_reduce(values, comm, stream.get()), comm), "");
    stream.synchronize();
    std::unique_ptr<StreamBarrier> barrier;
    if (context.rank == 0) barrier = std::make_unique<StreamBarrier>(stream.get());
    ASSERT_EQ(failure(all_reduce(values, comm, stream.get()), comm), "");
    context.barrier();
    if (context.rank == 1) { // while the operation waits for rank 0
      queue_fault(other.get());
      EXPECT_EQ(cuStreamSynchronize(other.get()), CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    context.barrier();
    if (barrier) barrier->open();
    // On the host path the operation may succeed, if rank 1's contribution was complete by then.
    if (context.rank == 1) {
      EXPECT_NE(all_reduce(values, comm, stream.get()), whorlSuccess);
    }
    EXPECT_THAT(error_of(comm), names_fault_of("rank 1"));
    if (context.rank == 0) stream.synchronize();
  };
  EXPECT_EQ(run_world(2, body, GetParam().environment), "");
}

TEST_P(DeviceFault, IsLookedForWithoutSpoilingAGraphOfTheProgram) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream, captured;
    DeviceCopy values(std::vector<float>(kCount, 1.0f), stream.get());
    ASSERT_EQ(failure(all_reduce(values.data<float>(), comm, stream.get()), comm), "");
    stream.synchronize();
    std::unique_ptr<StreamBarrier> barrier;
    if (context.rank == 1) barrier = std::make_unique<StreamBarrier>(stream.get());
    ASSERT_EQ(cuStreamBeginCapture(captured.get(), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    ASSERT_EQ(failure(all_reduce(values.data<float>(), comm, stream.get()), comm), "");
    context.barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(20)); // so that its threads look
    if (barrier) barrier->open();
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(captured.get(), &graph), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    EXPECT_EQ(values.read<float>(stream.get())[kCount - 1], 4.0f);
  };
  EXPECT_EQ(run_world(2, body, GetParam().environment), "");
}

TEST_F(DeviceFault, EndsReplaysOfAGraph) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    float* const values = ones(stream.get());
    const auto* const graph = new DeviceGraph(stream.get(), [&] { // destroy would fail
      ASSERT_EQ(failure(all_reduce(values, comm, stream.get()), comm), "");
    });
    graph->launch(stream.get());
    stream.synchronize();
    if (context.rank == 1) {
      graph->launch(stream.get());
      const DeviceQueue other;
      queue_fault(other.get());
    }
    context.barrier();
    if (context.rank == 0) graph->launch(stream.get());
    EXPECT_THAT(error_of(comm), names_fault_of("rank 1"));
    if (context.rank == 0) stream.synchronize(); // the stream continues
  };
  EXPECT_EQ(run_world(2, body), "");
}

TEST_F(DeviceFault, AmongRanksOfOneProcessIsToldByTheNextCall) {
  const auto outcomes = run_ranks(1, Mode::kProcesses, [](RankContext&) {
    const DeviceContext device;
    ThreadWorld world(2);
    const DeviceQueue first, second;
    float* const a = ones(first.get());
    float* const b = ones(second.get());
    const auto both = [&] {
      whorlGroupStart();
      static_cast<void>(all_reduce(a, world.comm(0), first.get()));
      static_cast<void>(all_reduce(b, world.comm(1), second.get()));
      return whorlGroupEnd();
    };
    ASSERT_EQ(both(), whorlSuccess);
    const StreamBarrier barrier(first.get());
    queue_fault(second.get());
    static_cast<void>(both()); // may be queued before or after the fault
    EXPECT_EQ(cuStreamSynchronize(second.get()), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(both(), whorlUnhandledCudaError);
    EXPECT_THAT(error_of(world.comm(0)), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
    EXPECT_THAT(error_of(world.comm(1)), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST_F(DeviceFault, KeepsMemoryThatCannotBeFreedKnown) {
  const auto outcomes = run_ranks(1, Mode::kProcesses, [](RankContext&) {
    const DeviceContext device;
    void* memory = nullptr;
    ASSERT_EQ(whorlMemAllocDevice(&memory, 4096), whorlSuccess);
    const DeviceQueue stream;
    queue_fault(stream.get());
    EXPECT_EQ(cuStreamSynchronize(stream.get()), CUDA_ERROR_ILLEGAL_ADDRESS);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(whorlMemFree(memory), whorlUnhandledCudaError);
      EXPECT_THAT(whorlGetLastError(nullptr), HasSubstr("cuMemFree"));
    }
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

} // namespace
} // namespace whorl::test
