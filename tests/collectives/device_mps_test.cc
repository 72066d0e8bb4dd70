// Tests of collectives of processes that share a device through NVIDIA's MPS, so that each may
// launch kernels of its own. Built with a pretended device, see tests/support/fake_cuda. Only the
// processes that are ranks use the driver.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/device_blocks.h"
#include "tests/support/device_case.h"
#include "tests/support/device_graph.h"
#include "tests/support/device_peers.h"

namespace whorl::test {
namespace {

/// Processes that share a device whose driver runs their kernels together.
class DeviceMps : public DevicePeers {
 protected:
  static std::string run(const DeviceProcess& body, Environment environment = {}) {
    environment.push_back({"FAKE_CUDA_MPS", "1"});
    return run_world(3, body, environment, 1);
  }
};

TEST_F(DeviceMps, LaunchKernelsOfTheirOwnIfAsked) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const std::vector<std::size_t> counts{1, 20'003};
    EXPECT_EQ(run_every_collective(context.rank, context.nranks, comm, stream.get(), counts), "");
    EXPECT_EQ(interpreter_launches(), cases_of_every_collective(counts));
    const long before = interpreter_launches();
    EXPECT_EQ(every_form({context.rank, context.nranks, comm, stream.get()}), "");
    EXPECT_GT(interpreter_launches() - before, 20);
  };
  EXPECT_EQ(run(body, {{"WHORL_DEVICE_ALGO", "schedule"}}), "");
}

TEST_F(DeviceMps, OneRankMayAskForThatForAll) {
  const auto body = [](RankContext& context) {
    const DeviceContext device;
    whorlComm_t comm = join(context, {{"FAKE_CUDA_MPS", "1"},
                                      {"WHORL_DEVICE_ALGO", context.rank == 1 ? "schedule" : ""}});
    ASSERT_NE(comm, nullptr);
    const DeviceQueue stream;
    EXPECT_EQ(run_case({.count = 900}, context.rank, context.nranks, comm, stream.get()), "");
    EXPECT_EQ(interpreter_launches(), 1);
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  };
  EXPECT_EQ(failures_of(run_ranks(2, Mode::kProcesses, body)), "");
}

// Checks memory without a handle, for which each rank launches a kernel, and other memory in turn.
TEST_F(DeviceMps, UseTheLeaderForMemoryThatItCanMap) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy plain(std::vector<std::int32_t>(3000, 1), stream.get());
    CUdeviceptr pooled = 0;
    ASSERT_EQ(cuMemAllocAsync(&pooled, 12'000, stream.get()), CUDA_SUCCESS);
    for (int round = 0; round < 6; ++round) {
      auto* const result =
          round % 2 == 0 && context.rank == 1 ? reinterpret_cast<void*>(pooled) : plain.data();
      ASSERT_EQ(failure(whorlAllReduce(plain.data(), result, 3000, whorlInt32, whorlMax, comm,
                                       stream.get()),
                        comm),
                "");
      EXPECT_EQ(interpreter_launches(), round / 2 + 1);
    }
    EXPECT_EQ(plain.read<std::int32_t>(stream.get()), std::vector<std::int32_t>(3000, 1));
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run(body), "");
}

TEST_F(DeviceMps, CaptureBothKindsOfKernels) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<std::int32_t>(3000, 1), stream.get());
    const DeviceCopy block(std::vector<std::int32_t>(1500, 0), stream.get());
    const std::vector<std::size_t> counts{700, 800, 1500}; // sums of them are the leader's
    ASSERT_EQ(failure(sum_up(values, 3000, comm, stream), comm), "");
    for (const bool leader : {true, false}) {
      const DeviceGraph graph(stream.get(), [&] {
        const whorlResult_t result =
            leader ? whorlReduceScatterv(values.data(), block.data(), counts.data(), whorlInt32,
                                         whorlSum, comm, stream.get())
                   : sum_up(values, 3000, comm, stream);
        EXPECT_EQ(failure(result, comm), "");
      });
      context.barrier();
      graph.launch(stream.get());
      stream.synchronize();
      context.barrier();
    }
    EXPECT_EQ(block.read<std::int32_t>(stream.get())[699], 9);
    EXPECT_EQ(values.read<std::int32_t>(stream.get())[2999], 9);
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run(body, {{"WHORL_DEVICE_ALGO", "schedule"}}), "");
}

} // namespace
} // namespace whorl::test
