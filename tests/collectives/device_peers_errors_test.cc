// Tests of the errors of processes with one device each, see device_peers_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/device_peers.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;
using DevicePeersErrors = DevicePeers;

TEST_F(DevicePeersErrors, AnUnknownWayIsRefused) {
  const auto body = [](RankContext&, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<std::int32_t>(100, 1), stream.get());
    EXPECT_EQ(sum_up(values, 100, comm, stream), whorlInvalidUsage);
    EXPECT_THAT(whorlGetLastError(comm), HasSubstr("WHORL_DEVICE_ALGO=\"magic\""));
  };
  EXPECT_EQ(run(2, body, {{"WHORL_DEVICE_ALGO", "magic"}}), "");
}

TEST_F(DevicePeersErrors, AStreamThatDoesNotComeIsNamed) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<std::int32_t>(5000, 1), stream.get());
    ASSERT_EQ(failure(sum_up(values, 5000, comm, stream), comm), ""); // allocates
    stream.synchronize();
    ASSERT_EQ(whorlCommSetTimeout(comm, 1000), whorlSuccess);
    std::unique_ptr<StreamBarrier> barrier;
    if (context.rank == 1) barrier = std::make_unique<StreamBarrier>(stream.get());
    ASSERT_EQ(failure(sum_up(values, 5000, comm, stream), comm), "");
    EXPECT_THAT(error_of(comm), HasSubstr("waiting for rank 1"));
    if (context.rank == 0) stream.synchronize(); // the stream continues
    context.barrier();
    if (barrier) barrier->open();
    stream.synchronize();
    EXPECT_EQ(values.read<std::int32_t>(stream.get())[4999], 2); // the kernels have changed nothing
  };
  EXPECT_EQ(run(2, body), "");
}

TEST_F(DevicePeersErrors, AKernelThatDoesNotBeginIsNamed) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<std::int32_t>(5000, 1), stream.get());
    if (context.rank == 2) hold_interpreters(2);
    ASSERT_EQ(failure(sum_up(values, 5000, comm, stream), comm), "");
    if (context.rank != 2) { // an error is visible as soon as the stream continues
      stream.synchronize();
      whorlResult_t state = whorlSuccess;
      EXPECT_EQ(whorlCommGetAsyncError(comm, &state), whorlSuccess);
      EXPECT_EQ(state, whorlRemoteError);
    }
    const std::string error = error_of(comm);
    EXPECT_THAT(error, HasSubstr("no progress within the timeout of 1.0 s"));
    EXPECT_THAT(error, HasSubstr("allreduce of 5000 int32 (sum): waiting for rank 2"));
    context.barrier();
    hold_interpreters(-1);
    stream.synchronize();
    EXPECT_EQ(sum_up(values, 5000, comm, stream), whorlRemoteError);
  };
  EXPECT_EQ(run(3, body, {{"WHORL_TIMEOUT_MS", "1000"}, {"WHORL_ALGO", "ring"}}), "");
}

TEST_F(DevicePeersErrors, AnAbortLetsKernelsLeave) {
  const auto outcomes = run_ranks(2, Mode::kProcesses, [](RankContext& context) {
    const DeviceContext device(context.rank);
    whorlComm_t comm = join(context, {});
    ASSERT_NE(comm, nullptr);
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<std::int32_t>(60'000, 1), stream.get());
    if (context.rank == 1) hold_interpreters(1);
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(failure(sum_up(values, 60'000, comm, stream), comm), "");
    }
    context.barrier(); // all operations are queued; rank 0's waits for a kernel
    if (context.rank == 1) {
      std::thread opener([&] { // the other rank continues without this kernel
        context.barrier();
        hold_interpreters(-1);
      });
      EXPECT_EQ(whorlCommAbort(comm), whorlSuccess);
      opener.join();
    } else {
      EXPECT_THAT(error_of(comm), HasSubstr("rank 1"));
      stream.synchronize();
      context.barrier();
      EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
    }
    stream.synchronize();
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST_F(DevicePeersErrors, ADeadRankDoesNotHoldKernelsUp) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<std::int32_t>(60'000, 1), stream.get());
    ASSERT_EQ(failure(sum_up(values, 60'000, comm, stream), comm), "");
    stream.synchronize();
    if (context.rank == 1) hold_interpreters(1);
    ASSERT_EQ(failure(sum_up(values, 60'000, comm, stream), comm), "");
    context.barrier();
    if (context.rank == 1) context.die();
    EXPECT_THAT(error_of(comm), HasSubstr("rank 1"));
    EXPECT_THAT(error_of(comm), HasSubstr("died"));
    stream.synchronize();
  };
  const auto outcomes = outcomes_of(2, {}, body, 2);
  EXPECT_EQ(outcomes[0].failures, "");
  EXPECT_TRUE(outcomes[1].killed);
}

} // namespace
} // namespace whorl::test
