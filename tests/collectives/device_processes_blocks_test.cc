// Tests of collectives whose blocks have different sizes, on device memory among processes that
// share a device. Built with a pretended device, see tests/support/fake_cuda; with the real driver
// first in LD_LIBRARY_PATH it runs on a real one. Only the processes that are ranks use the driver.
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/device_blocks.h"
#include "tests/support/device_graph.h"
#include "tests/support/device_processes.h"
#include "tests/support/pretended_device.h"
#include "tests/support/uneven_blocks.h"

namespace whorl::test {
namespace {

/// Runs `body` in n processes.
template <class Body>
void run_processes(int n, Body&& body) {
  const auto rank = [&](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    EXPECT_EQ(body(DeviceCaller{context.rank, n, comm, stream.get()}), "");
  };
  EXPECT_EQ(run_world(n, rank), "");
}

class DeviceProcessesBlocks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceProcessesBlocks, ::testing::Values(2, 3, 4));

TEST_P(DeviceProcessesBlocks, TakeOneKernel) {
  run_processes(GetParam(), [](const DeviceCaller& caller) { return every_form(caller); });
}

TEST(DeviceProcessesBlocksOfOneSize, MayBeGatheredByBothForms) { run_processes(3, both_forms); }

TEST(DeviceProcessesBlocksErrors, WrongCountsNameBothRanks) { run_processes(3, wrong_counts); }

/// Replays an exchange of blocks among three processes, of zeros, then of the elements.
void replay(RankContext& context, whorlComm_t comm) {
  const DeviceQueue stream;
  AllToAllv exchange(random_matrix(3, 7, 4000), context.rank, 1);
  const std::vector<int> zeros(exchange.send.size());
  const DeviceCopy in(zeros, stream.get()), out(exchange.recv, stream.get());
  const auto run = [&] {
    EXPECT_EQ(failure(exchange.run(in.data(), out.data(), comm, stream.get()), comm), "");
  };
  run(); // the first between several devices cannot be captured
  const DeviceGraph graph(stream.get(), run);
  for (int replay = 0; replay < 2; ++replay) {
    const auto& contents = replay == 0 ? zeros : exchange.send;
    EXPECT_EQ(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(in.data()),
                            reinterpret_cast<CUdeviceptr>(contents.data()),
                            contents.size() * sizeof(int), stream.get()),
              CUDA_SUCCESS);
    context.barrier();
    graph.launch(stream.get());
    exchange.recv = out.read<int>(stream.get());
    const bool none = context.rank == 2; // receives nothing
    EXPECT_EQ(exchange.recv == exchange.expected, replay == 1 || none);
    context.barrier();
  }
  EXPECT_FALSE(host_was_used(comm));
}

TEST(DeviceProcessesBlocksInGraphs, AreReplayedWithNewContents) {
  EXPECT_EQ(run_world(3, replay), "");
}

TEST(DeviceProcessesBlocksInGraphs, AreReplayedByKernelsOfSeveralDevices) {
  if (!device_is_pretended()) GTEST_SKIP() << "needs three devices";
  const ScopedEnv settings{{"FAKE_CUDA_DEVICES", "3"}};
  EXPECT_EQ(run_world(3, replay, {}, 3), "");
}

} // namespace
} // namespace whorl::test
