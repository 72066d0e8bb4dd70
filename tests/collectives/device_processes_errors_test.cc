// Tests of the errors of processes that share a device, see device_processes_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "tests/support/device_processes.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;

TEST(DeviceProcessesErrors, AnAbsentRankIsNamed) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<float>(5000, 1.0f), stream.get());
    if (context.rank == 0) {
      EXPECT_EQ(whorlAllReduce(values.data(), values.data(), 5000, whorlFloat32, whorlSum, comm,
                               stream.get()),
                whorlRemoteError);
      EXPECT_THAT(whorlGetLastError(comm), HasSubstr("waiting for rank 1"));
    }
    context.barrier();
    if (context.rank == 1) { // too late: the operation is dropped
      EXPECT_EQ(whorlAllReduce(values.data(), values.data(), 5000, whorlFloat32, whorlSum, comm,
                               stream.get()),
                whorlRemoteError);
    }
    context.barrier();
    EXPECT_EQ(values.read<float>(stream.get())[4999], 1.0f);
  };
  EXPECT_EQ(run_world(2, body, {{"WHORL_TIMEOUT_MS", "1000"}}), "");
}

void expect_leaver_named(bool captured) {
  const auto outcomes = run_ranks(2, Mode::kProcesses, [captured](RankContext& context) {
    const DeviceContext device;
    whorlComm_t comm = join(context, {{"WHORL_TIMEOUT_MS", "2000"}});
    ASSERT_NE(comm, nullptr);
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<float>(5000, 1.0f), stream.get());
    const auto sum = [&] {
      return whorlAllReduce(values.data(), values.data(), 5000, whorlFloat32, whorlSum, comm,
                            stream.get());
    };
    EXPECT_EQ(failure(sum(), comm), "");
    if (context.rank == 0) {
      if (captured) {
        ASSERT_EQ(cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
      }
      static_cast<void>(sum()); // the call or the stream gets the error
      EXPECT_THAT(error_of(comm), HasSubstr("has destroyed its communicator"));
      CUgraph graph = nullptr;
      if (captured && cuStreamEndCapture(stream.get(), &graph) == CUDA_SUCCESS) {
        EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
      }
    }
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
    context.barrier();
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST(DeviceProcessesErrors, ARankThatHasLeftIsNamed) { expect_leaver_named(false); }
TEST(DeviceProcessesErrors, ARankThatHasLeftIsNamedInACapture) { expect_leaver_named(true); }

TEST(DeviceProcessesErrors, AStreamThatDoesNotComeIsNamed) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<float>(5000, 1.0f), stream.get());
    std::unique_ptr<StreamBarrier> barrier;
    if (context.rank == 1) barrier = std::make_unique<StreamBarrier>(stream.get());
    ASSERT_EQ(failure(whorlAllReduce(values.data(), values.data(), 5000, whorlFloat32, whorlSum,
                                     comm, stream.get()),
                      comm),
              "");
    EXPECT_THAT(error_of(comm), HasSubstr("waiting for rank 1"));
    if (context.rank == 0) stream.synchronize(); // the stream continues
    context.barrier();
    if (barrier) barrier->open();
    stream.synchronize();
    EXPECT_EQ(values.read<float>(stream.get())[4999], 1.0f); // the operation changed nothing
  };
  EXPECT_EQ(run_world(2, body, {{"WHORL_TIMEOUT_MS", "1000"}}), "");
}

TEST(DeviceProcessesErrors, RanksThatDisagreeAreTold) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<float>(5000, 1.0f), stream.get());
    const std::size_t count = context.rank == 0 ? 5000 : 4999;
    EXPECT_EQ(whorlAllReduce(values.data(), values.data(), count, whorlFloat32, whorlSum, comm,
                             stream.get()),
              whorlInvalidUsage);
    EXPECT_THAT(whorlGetLastError(comm), HasSubstr("differ in count"));
  };
  EXPECT_EQ(run_world(2, body), "");
}

TEST(DeviceProcessesErrors, RanksThatDisagreeInAGroupAreToldAtOnce) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<float>(5000, 1.0f), stream.get());
    ASSERT_EQ(whorlGroupStart(), whorlSuccess);
    for (const std::size_t n : {context.rank == 0 ? 5000U : 4999U, 5000U}) {
      EXPECT_EQ(whorlAllReduce(values.data(), values.data(), n, whorlFloat32, whorlSum, comm,
                               stream.get()),
                whorlSuccess);
    }
    EXPECT_NE(whorlGroupEnd(), whorlSuccess);
    EXPECT_THAT(whorlGetLastError(comm), HasSubstr("differ in count"));
    stream.synchronize();
  };
  EXPECT_EQ(run_world(2, body, {{"WHORL_TIMEOUT_MS", "600000"}}),
            ""); // longer than the test may take
}

TEST(DeviceProcessesErrors, AbortEndsOperationsInAllStreams) {
  const auto outcomes = run_ranks(3, Mode::kProcesses, [](RankContext& context) {
    const DeviceContext device;
    whorlComm_t comm = join(context, {});
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<float>(60'000, 1.0f), stream.get());
    std::unique_ptr<StreamBarrier> barrier;
    if (context.rank == 2) barrier = std::make_unique<StreamBarrier>(stream.get());
    for (int i = 0; i < 5; ++i) {
      ASSERT_EQ(failure(whorlAllReduce(values.data(), values.data(), 60'000, whorlFloat32, whorlSum,
                                       comm, stream.get()),
                        comm),
                "");
    }
    context.barrier(); // all ranks have queued all operations
    if (context.rank == 2) {
      std::thread opener([&] { // the other ranks continue without this stream
        context.barrier();
        barrier->open();
      });
      EXPECT_EQ(whorlCommAbort(comm), whorlSuccess);
      opener.join();
    } else {
      EXPECT_THAT(error_of(comm), HasSubstr("rank 2"));
      stream.synchronize();
      EXPECT_EQ(values.read<float>(stream.get())[59'999], 1.0f);
      context.barrier();
      EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
    }
    stream.synchronize();
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST(DeviceProcessesErrors, ADeadRankDoesNotHoldStreamsUp) {
  for (const bool in_the_call : {true, false}) {
    const auto body = [=](RankContext& context, whorlComm_t comm) {
      const DeviceQueue stream;
      const DeviceCopy values(std::vector<float>(60'000, 1.0f), stream.get());
      const auto call = [&] {
        return whorlAllReduce(values.data(), values.data(), 60'000, whorlFloat32, whorlSum, comm,
                              stream.get());
      };
      ASSERT_EQ(failure(call(), comm), "");
      stream.synchronize();
      if (context.rank == 1) {
        if (in_the_call) context.die();
        const StreamBarrier barrier(stream.get());
        ASSERT_EQ(failure(call(), comm), "");
        context.barrier();
        context.die();
      }
      const whorlResult_t result = call();
      if (in_the_call) {
        EXPECT_EQ(result, whorlRemoteError);
      } else {
        EXPECT_EQ(failure(result, comm), "");
        context.barrier();
      }
      EXPECT_THAT(error_of(comm), HasSubstr("rank 1"));
      EXPECT_THAT(error_of(comm), HasSubstr("died"));
      stream.synchronize();
    };
    const auto outcomes = outcomes_of(2, {}, body);
    EXPECT_EQ(outcomes[0].failures, "");
    EXPECT_TRUE(outcomes[1].killed);
  }
}

template <class Call>
void expect_refused_in_capture(CUstream stream, Call&& call) {
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(call(), whorlInvalidUsage);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST(DeviceProcessesErrors, ACaptureThatIsRefusedOnOneRankIsNoCall) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<float>(50, 1.0f), stream.get());
    const auto call = [&] {
      return whorlAllReduce(values.data(), values.data(), 50, whorlFloat32, whorlSum, comm,
                            stream.get());
    };
    std::vector<float> host(50);
    const auto host_call = [&] {
      return whorlAllReduce(host.data(), host.data(), 50, whorlFloat32, whorlSum, comm,
                            stream.get());
    };
    ASSERT_EQ(failure(call(), comm), "");
    for (int round = 0; round < 3; ++round) {
      if (context.rank == 0) expect_refused_in_capture(stream.get(), host_call);
      ASSERT_EQ(failure(call(), comm), "");
    }
    EXPECT_EQ(values.read<float>(stream.get())[49], 16.0f);
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(2, body), "");
}

} // namespace
} // namespace whorl::test
