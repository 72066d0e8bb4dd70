#include "tests/support/device_processes.h"

#include <chrono>
#include <new>
#include <thread>

namespace whorl::test {

std::vector<RankOutcome> outcomes_of(int n, const Environment& environment,
                                     const DeviceProcess& body, int devices) {
  return run_ranks(n, Mode::kProcesses, [&](RankContext& context) {
    const DeviceContext device(context.rank % devices);
    whorlComm_t comm = join(context, environment);
    ASSERT_NE(comm, nullptr);
    body(context, comm);
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
}

std::string run_world(int n, const DeviceProcess& body, const Environment& environment,
                      int devices) {
  return failures_of(outcomes_of(n, environment, body, devices));
}

std::string run_pairs(const PairOfRanks& body) {
  return failures_of(run_ranks(2, Mode::kProcesses, [&](RankContext& context) {
    const DeviceContext device;
    const whorlUniqueId id = shared_id(context);
    std::array<whorlComm_t, 2> comms{};
    whorlGroupStart();
    for (int i = 0; i < 2; ++i) {
      whorlCommInitRank(&comms[static_cast<std::size_t>(i)], 4, id, 2 * context.rank + i);
    }
    ASSERT_EQ(failure(whorlGroupEnd()), "");
    const std::array<DeviceQueue, 2> streams;
    body(context, comms, streams);
    for (whorlComm_t comm : comms) {
      EXPECT_TRUE(comm == nullptr || whorlCommDestroy(comm) == whorlSuccess);
    }
  }));
}

bool host_was_used(whorlComm_t comm) {
  std::uint64_t bytes = 0;
  EXPECT_EQ(whorlCommMemStats(comm, whorlStatHostMemPlans, &bytes), whorlSuccess);
  return bytes > 0;
}

std::string error_of(whorlComm_t comm) {
  for (int i = 0; i < 2000; ++i) {
    whorlResult_t state = whorlSuccess;
    EXPECT_EQ(whorlCommGetAsyncError(comm, &state), whorlSuccess);
    if (state != whorlSuccess) return whorlGetLastError(comm);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return {};
}

StreamBarrier::StreamBarrier(CUstream stream) {
  void* memory = nullptr;
  EXPECT_EQ(cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
  word_ = new (memory) std::atomic<std::uint32_t>(0);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemHostGetDevicePointer(&address, memory, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitValue32(stream, address, 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
}

} // namespace whorl::test
