// Collectives on device memory among processes that share a device. Built with a pretended device,
// see tests/support/fake_cuda; with the real driver first in LD_LIBRARY_PATH it runs on a real one.
// Only the processes that are ranks use the driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/device.h"
#include "tests/support/oracle.h"
#include "tests/support/process_world.h"

namespace whorl::test {
namespace {

using Kind = CollectiveCase::Kind;
using ::testing::HasSubstr;
using testing::Mode;
using testing::RankContext;
using testing::RankOutcome;

using Body = std::function<void(RankContext&, whorlComm_t)>;

/// Runs `body` in n processes on device 0 that form one communicator.
std::vector<RankOutcome> outcomes_of(int n, const Environment& environment, const Body& body) {
  return run_ranks(n, Mode::kProcesses, [&](RankContext& context) {
    const DeviceContext device;
    whorlComm_t comm = join(context, environment);
    ASSERT_NE(comm, nullptr);
    body(context, comm);
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
}

std::string run_world(int n, const Body& body, const Environment& environment = {}) {
  return failures_of(outcomes_of(n, environment, body));
}

/// Whether the host has carried out a collective of this communicator.
bool host_was_used(whorlComm_t comm) {
  std::uint64_t bytes = 0;
  EXPECT_EQ(whorlCommMemStats(comm, whorlStatHostMemPlans, &bytes), whorlSuccess);
  return bytes > 0;
}

/// Runs a case with its buffers on the device; its result is checked when it is destroyed, or by
/// check().
class DeviceCase {
 public:
  DeviceCase(const CollectiveCase& c, const RankContext& context, whorlComm_t comm, CUstream stream)
      : name_(c.text()),
        buffers_(c, context.rank, context.nranks),
        copy_(buffers_.memory(), stream),
        stream_(stream) {
    EXPECT_EQ(failure(buffers_.run_on(copy_.data(), comm, stream), comm), "") << name_;
  }
  void check() {
    copy_.read(buffers_.memory(), stream_);
    EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(buffers_.check(), "") << name_;
  }

 private:
  std::string name_;
  Buffers buffers_;
  DeviceCopy copy_;
  CUstream stream_;
};

void run_case(const CollectiveCase& c, const RankContext& context, whorlComm_t comm,
              CUstream stream) {
  DeviceCase(c, context, comm, stream).check();
}

/// Keeps a stream from going on until it is opened, by the host.
class Barrier {
 public:
  explicit Barrier(CUstream stream) {
    void* memory = nullptr;
    EXPECT_EQ(cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
    word_ = new (memory) std::atomic<std::uint32_t>(0);
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemHostGetDevicePointer(&address, memory, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWaitValue32(stream, address, 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  }
  void open() { word_->store(1, std::memory_order_release); }

 private:
  std::atomic<std::uint32_t>* word_; // kept until the process ends
};

class DeviceProcesses : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceProcesses, ::testing::Values(2, 3, 4));

TEST_P(DeviceProcesses, DoEveryCollectiveWithoutTheHost) {
  EXPECT_EQ(run_world(GetParam(),
                      [](RankContext& context, whorlComm_t comm) {
                        const DeviceQueue stream;
                        for (int kind = Kind::kAllReduce; kind <= Kind::kScatter; ++kind) {
                          for (const bool in_place : {false, true}) {
                            if (in_place && kind == Kind::kAllToAll) continue;
                            for (const std::size_t count : {1U, 1001U, 70'001U}) {
                              run_case({.kind = static_cast<Kind>(kind),
                                        .count = count,
                                        .type = count == 1001 ? whorlFloat16 : whorlInt32,
                                        .root = context.nranks - 1,
                                        .in_place = in_place},
                                       context, comm, stream.get());
                            }
                          }
                        }
                        EXPECT_FALSE(host_was_used(comm));
                      }),
            "");
}

TEST(DeviceProcessesOperators, OfEveryDatatype) {
  EXPECT_EQ(run_world(3,
                      [](RankContext& context, whorlComm_t comm) {
                        const DeviceQueue stream;
                        for (int type = 0; type < whorlNumTypes; ++type) {
                          for (const whorlRedOp_t op : {whorlSum, whorlMax, whorlAvg}) {
                            if (type == whorlBool && op == whorlAvg) continue;
                            run_case(
                                {.kind = op == whorlMax ? Kind::kReduceScatter : Kind::kAllReduce,
                                 .count = 40'003,
                                 .type = static_cast<whorlDataType_t>(type),
                                 .op = op},
                                context, comm, stream.get());
                          }
                        }
                        EXPECT_FALSE(host_was_used(comm));
                      }),
            "");
}

TEST(DeviceProcessesOrder, StreamsRunAheadOfEachOther) {
  constexpr std::size_t kCount = 1 << 16;
  constexpr int kRounds = 20;
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<std::int32_t>(kCount, 1), stream.get());
    const auto double_all = [&](int rounds) {
      for (int round = 0; round < rounds; ++round) {
        ASSERT_EQ(failure(whorlAllReduce(values.data(), values.data(), kCount, whorlInt32, whorlSum,
                                         comm, stream.get()),
                          comm),
                  "");
      }
    };
    double_all(1);
    // Calls wait for calls, not for streams: all are queued before the first may begin.
    std::unique_ptr<Barrier> barrier;
    if (context.rank == 1) barrier = std::make_unique<Barrier>(stream.get());
    double_all(kRounds - 1);
    context.barrier();
    if (barrier) barrier->open();
    for (const std::int32_t value : values.read<std::int32_t>(stream.get())) {
      ASSERT_EQ(value, 1 << kRounds);
    }
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(2, body), "");
}

TEST(DeviceProcessesOrder, SeveralStreamsOfARankAreKeptInOrder) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue first, second;
    const DeviceCopy a(std::vector<std::int32_t>(30'000, 1), first.get());
    const DeviceCopy b(std::vector<std::int32_t>(30'000, 2), first.get());
    for (int round = 0; round < 12; ++round) {
      // Ranks change streams at different times.
      const bool swapped = (round + context.rank) % 3 == 0;
      const DeviceCopy& values = round % 2 == 0 ? a : b;
      CUstream stream = swapped ? second.get() : first.get();
      ASSERT_EQ(failure(whorlAllReduce(values.data(), values.data(), 30'000, whorlInt32, whorlSum,
                                       comm, stream),
                        comm),
                "");
    }
    first.synchronize();
    second.synchronize();
    EXPECT_EQ(a.read<std::int32_t>(first.get()), std::vector<std::int32_t>(30'000, 64));
    EXPECT_EQ(b.read<std::int32_t>(first.get()), std::vector<std::int32_t>(30'000, 128));
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(2, body), "");
}

TEST(DeviceProcessesOrder, ABarrierIsForStreams) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    std::unique_ptr<Barrier> barrier;
    if (context.rank == 0) barrier = std::make_unique<Barrier>(stream.get());
    ASSERT_EQ(failure(whorlBarrier(comm, stream.get()), comm), "");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(cuStreamQuery(stream.get()), CUDA_ERROR_NOT_READY);
    context.barrier();
    if (barrier) barrier->open();
    stream.synchronize();
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(3, body), "");
}

TEST(DeviceProcessesMemory, ThatIsFreedAndAllocatedAgainIsNotMistaken) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    for (int round = 0; round < 40; ++round) {
      // One rank keeps its buffers as long as the others use two.
      std::array<std::unique_ptr<DeviceCase>, 2> cases;
      for (auto& one : cases) {
        one = std::make_unique<DeviceCase>(
            CollectiveCase{.kind = round % 3 == 0 ? Kind::kAllGather : Kind::kAllReduce,
                           .count = 5000U + static_cast<unsigned>(round % 2) * 1000,
                           .op = round % 2 == 0 ? whorlSum : whorlMax},
            context, comm, stream.get());
        if (context.rank != 0) {
          one->check();
          one.reset();
        }
      }
      for (auto& one : cases) {
        if (one != nullptr) one->check();
      }
    }
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(2, body), "");
}

TEST(DeviceProcessesMemory, MoreBuffersThanAreKeptMapped) {
  constexpr int kBuffers = 80;
  const auto body = [](RankContext&, whorlComm_t comm) {
    const DeviceQueue stream;
    std::vector<std::unique_ptr<DeviceCopy>> buffers;
    for (int i = 0; i < kBuffers; ++i) {
      buffers.push_back(
          std::make_unique<DeviceCopy>(std::vector<std::int32_t>(2000, i), stream.get()));
    }
    for (int round = 0; round < 2; ++round) {
      for (const auto& buffer : buffers) {
        ASSERT_EQ(failure(whorlAllReduce(buffer->data<std::int32_t>() + 7,
                                         buffer->data<std::int32_t>() + 7, 1990, whorlInt32,
                                         whorlSum, comm, stream.get()),
                          comm),
                  "");
      }
    }
    for (int i = 0; i < kBuffers; ++i) {
      std::vector<std::int32_t> expected(2000, 4 * i);
      std::fill(expected.begin(), expected.begin() + 7, i);
      std::fill(expected.begin() + 1997, expected.end(), i);
      ASSERT_EQ(buffers[static_cast<std::size_t>(i)]->read<std::int32_t>(stream.get()), expected);
    }
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(2, body), "");
}

TEST(DeviceProcessesMemory, SomeRanksMayHaveItOnTheHost) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    int turn = 0;
    for (int round = 0; round < 3; ++round) {
      for (int kind = Kind::kAllReduce; kind <= Kind::kScatter; ++kind, ++turn) {
        const CollectiveCase c{.kind = static_cast<Kind>(kind), .count = 5000};
        if ((context.rank + turn) % 3 != 0 || round == 2) {
          run_case(c, context, comm, stream.get());
        } else {
          Buffers buffers(c, context.rank, context.nranks);
          ASSERT_EQ(failure(buffers.run(comm), comm), "") << c.text();
          ASSERT_EQ(buffers.check(), "") << c.text();
        }
      }
    }
    EXPECT_TRUE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(3, body), "");
}

TEST(DeviceProcessesMemory, OfAPoolIsExchangedByTheHost) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const std::vector<std::int32_t> ones(3000, 1);
    const DeviceCopy plain(ones, stream.get());
    CUdeviceptr pooled = 0;
    if (context.rank == 0) {
      ASSERT_EQ(cuMemAllocAsync(&pooled, 12'000, stream.get()), CUDA_SUCCESS);
      ASSERT_EQ(
          cuMemcpyAsync(pooled, reinterpret_cast<CUdeviceptr>(plain.data()), 12'000, stream.get()),
          CUDA_SUCCESS);
    }
    void* const data = context.rank == 0 ? reinterpret_cast<void*>(pooled) : plain.data();
    ASSERT_EQ(
        failure(whorlAllReduce(data, data, 3000, whorlInt32, whorlSum, comm, stream.get()), comm),
        "");
    if (context.rank == 0) {
      ASSERT_EQ(
          cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(plain.data()), pooled, 12'000, stream.get()),
          CUDA_SUCCESS);
    }
    EXPECT_EQ(plain.read<std::int32_t>(stream.get()), std::vector<std::int32_t>(3000, 2));
    EXPECT_TRUE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(2, body), "");
}

TEST(DeviceProcessesMemory, IsExchangedByTheHostIfARankWantsThat) {
  const auto outcomes = run_ranks(2, Mode::kProcesses, [](RankContext& context) {
    const DeviceContext device;
    whorlComm_t comm =
        join(context, context.rank == 1 ? Environment{{"WHORL_DEVICE_IPC", "0"}} : Environment{});
    ASSERT_NE(comm, nullptr);
    const DeviceQueue stream;
    run_case({.count = 9000}, context, comm, stream.get());
    EXPECT_TRUE(host_was_used(comm));
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST(DeviceProcessesGroups, MixDeviceAndHostAndTransfers) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    for (int round = 0; round < 5; ++round) {
      const std::vector<std::int32_t> mine(20'000, context.rank + 1);
      const DeviceCopy a(mine, stream.get()), b(mine, stream.get()), c(mine, stream.get());
      std::vector<std::int32_t> on_host(100, context.rank);
      const int next = (context.rank + 1) % context.nranks;
      const int before = (context.rank + context.nranks - 1) % context.nranks;
      whorlGroupStart();
      whorlAllReduce(a.data(), a.data(), 20'000, whorlInt32, whorlSum, comm, stream.get());
      whorlAllReduce(on_host.data(), on_host.data(), 100, whorlInt32, whorlMax, comm, nullptr);
      whorlSend(b.data(), 10'000, whorlInt32, next, comm, stream.get());
      whorlRecv(b.data<std::int32_t>() + 10'000, 10'000, whorlInt32, before, comm, stream.get());
      whorlAllReduce(a.data(), c.data(), 20'000, whorlInt32, whorlSum, comm, stream.get());
      whorlBroadcast(a.data(), a.data(), 3, whorlInt32, 1, comm, stream.get());
      ASSERT_EQ(failure(whorlGroupEnd(), comm), "");
      const int sum = context.nranks * (context.nranks + 1) / 2;
      EXPECT_EQ(a.read<std::int32_t>(stream.get()), std::vector<std::int32_t>(20'000, sum));
      EXPECT_EQ(c.read<std::int32_t>(stream.get()),
                std::vector<std::int32_t>(20'000, sum * context.nranks));
      EXPECT_EQ(b.read<std::int32_t>(stream.get())[10'000], before + 1);
      EXPECT_EQ(on_host[99], context.nranks - 1);
    }
  };
  EXPECT_EQ(run_world(3, body), "");
}

TEST(DeviceProcessesGroups, TwoCommunicatorsInAnyOrder) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    whorlComm_t other = nullptr;
    ASSERT_EQ(failure(whorlCommSplit(comm, 0, -context.rank, &other, nullptr), comm), "");
    const DeviceQueue first, second;
    const DeviceCopy a(std::vector<float>(25'000, 1.0f), first.get());
    const DeviceCopy b(std::vector<float>(25'000, 1.0f), second.get());
    for (int round = 0; round < 10; ++round) {
      const bool swapped = (round + context.rank) % 2 == 0;
      whorlGroupStart();
      for (const bool one : {swapped, !swapped}) {
        whorlAllReduce(one ? a.data() : b.data(), one ? a.data() : b.data(), 25'000, whorlFloat32,
                       whorlSum, one ? comm : other, one ? first.get() : second.get());
      }
      ASSERT_EQ(failure(whorlGroupEnd(), comm), "");
    }
    EXPECT_EQ(a.read<float>(first.get()), std::vector<float>(25'000, 1024.0f));
    EXPECT_EQ(b.read<float>(second.get()), std::vector<float>(25'000, 1024.0f));
    EXPECT_FALSE(host_was_used(other)); // the split itself was an operation of the first one
    EXPECT_EQ(whorlCommDestroy(other), whorlSuccess);
  };
  EXPECT_EQ(run_world(2, body), "");
}

TEST(DeviceProcessesGroups, AThreadMayActForSeveralRanksOfItsProcess) {
  constexpr int kEach = 2;
  const auto outcomes = run_ranks(2, Mode::kProcesses, [](RankContext& context) {
    const DeviceContext device;
    whorlUniqueId id{};
    if (context.rank == 0) {
      EXPECT_EQ(failure(whorlGetUniqueId(&id)), "");
    }
    const auto ids = context.allgather(std::as_bytes(std::span(&id, 1)));
    std::memcpy(&id, ids[0].data(), sizeof id);
    std::array<whorlComm_t, kEach> comms{};
    whorlGroupStart();
    for (int i = 0; i < kEach; ++i) {
      whorlCommInitRank(&comms[static_cast<std::size_t>(i)], 2 * kEach, id,
                        kEach * context.rank + i);
    }
    ASSERT_EQ(failure(whorlGroupEnd()), "");
    const std::array<DeviceQueue, kEach> streams;
    std::vector<std::unique_ptr<DeviceCopy>> buffers;
    for (const DeviceQueue& stream : streams) {
      buffers.push_back(
          std::make_unique<DeviceCopy>(std::vector<std::int32_t>(50'000, 1), stream.get()));
    }
    for (int round = 0; round < 5; ++round) {
      whorlGroupStart();
      for (int twice = 0; twice < 2; ++twice) {
        for (std::size_t i = 0; i < kEach; ++i) {
          whorlAllReduce(buffers[i]->data(), buffers[i]->data(), 50'000, whorlInt32, whorlSum,
                         comms[i], streams[i].get());
        }
      }
      ASSERT_EQ(failure(whorlGroupEnd(), comms[0]), "");
    }
    for (std::size_t i = 0; i < kEach; ++i) {
      EXPECT_EQ(buffers[i]->read<std::int32_t>(streams[i].get()),
                std::vector<std::int32_t>(50'000, 1 << 20));
      EXPECT_FALSE(host_was_used(comms[i]));
    }
    for (whorlComm_t comm : comms) EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

/// The error of a communicator, as soon as it has one.
std::string error_of(whorlComm_t comm) {
  for (int i = 0; i < 2000; ++i) {
    whorlResult_t state = whorlSuccess;
    EXPECT_EQ(whorlCommGetAsyncError(comm, &state), whorlSuccess);
    if (state != whorlSuccess) return whorlGetLastError(comm);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return {};
}

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
    if (context.rank == 1) { // too late: nothing is done
      EXPECT_EQ(whorlAllReduce(values.data(), values.data(), 5000, whorlFloat32, whorlSum, comm,
                               stream.get()),
                whorlRemoteError);
    }
    context.barrier();
    EXPECT_EQ(values.read<float>(stream.get())[4999], 1.0f);
  };
  EXPECT_EQ(run_world(2, body, {{"WHORL_TIMEOUT_MS", "1000"}}), "");
}

TEST(DeviceProcessesErrors, AStreamThatDoesNotComeIsNamed) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<float>(5000, 1.0f), stream.get());
    std::unique_ptr<Barrier> barrier;
    if (context.rank == 1) barrier = std::make_unique<Barrier>(stream.get());
    ASSERT_EQ(failure(whorlAllReduce(values.data(), values.data(), 5000, whorlFloat32, whorlSum,
                                     comm, stream.get()),
                      comm),
              "");
    EXPECT_THAT(error_of(comm), HasSubstr("waiting for rank 1"));
    if (context.rank == 0) stream.synchronize(); // goes on
    context.barrier();
    if (barrier) barrier->open();
    stream.synchronize();
    EXPECT_EQ(values.read<float>(stream.get())[4999], 1.0f); // nothing was done
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
    std::unique_ptr<Barrier> barrier;
    if (context.rank == 2) barrier = std::make_unique<Barrier>(stream.get());
    for (int i = 0; i < 5; ++i) {
      ASSERT_EQ(failure(whorlAllReduce(values.data(), values.data(), 60'000, whorlFloat32, whorlSum,
                                       comm, stream.get()),
                        comm),
                "");
    }
    context.barrier(); // all have queued all
    if (context.rank == 2) {
      std::thread opener([&] { // the others do not need this stream to go on
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
        const Barrier barrier(stream.get());
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

TEST(DeviceProcessesErrors, ACaptureIsRefused) {
  const auto body = [](RankContext&, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<float>(50, 1.0f), stream.get());
    const auto call = [&] {
      return whorlAllReduce(values.data(), values.data(), 50, whorlFloat32, whorlSum, comm,
                            stream.get());
    };
    ASSERT_EQ(failure(call(), comm), "");
    stream.synchronize();
    ASSERT_EQ(cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(call(), whorlInvalidUsage);
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(stream.get(), &graph), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    EXPECT_EQ(failure(call(), comm), "");
    EXPECT_EQ(values.read<float>(stream.get())[49], 4.0f);
  };
  EXPECT_EQ(run_world(2, body), "");
}

} // namespace
} // namespace whorl::test
