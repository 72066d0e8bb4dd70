// Tests of collectives on device memory among processes that share a device. Built with a pretended
// device, see tests/support/fake_cuda; with the real driver first in LD_LIBRARY_PATH it runs on a
// real one. Only the processes that are ranks use the driver.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/device_case.h"
#include "tests/support/device_processes.h"
#include "tests/support/pretended_device.h"

namespace whorl::test {
namespace {

using Kind = CollectiveCase::Kind;

void check_case(const CollectiveCase& c, const RankContext& context, whorlComm_t comm,
                CUstream stream) {
  EXPECT_EQ(run_case(c, context.rank, context.nranks, comm, stream), "");
}

class DeviceProcesses : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceProcesses, ::testing::Values(2, 3, 4));

TEST_P(DeviceProcesses, DoEveryCollectiveWithoutTheHost) {
  EXPECT_EQ(run_world(GetParam(),
                      [](RankContext& context, whorlComm_t comm) {
                        const DeviceQueue stream;
                        for (CollectiveCase c : every_case({1, 1001, 70'001})) {
                          c.type = c.count == 1001 ? whorlFloat16 : whorlInt32;
                          c.root = context.nranks - 1;
                          check_case(c, context, comm, stream.get());
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
                            check_case(
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
    // Calls do not wait for streams: all calls are queued before the first operation may begin.
    std::unique_ptr<StreamBarrier> barrier;
    if (context.rank == 1) barrier = std::make_unique<StreamBarrier>(stream.get());
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
      // Ranks change streams in different rounds.
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

TEST(DeviceProcessesOrder, FinalizeWaitsForStreams) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    auto& opened = *reinterpret_cast<std::atomic<std::uint32_t>*>(context.shared());
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<std::int32_t>(100, 1), stream.get());
    std::unique_ptr<StreamBarrier> barrier;
    if (context.rank == 1) barrier = std::make_unique<StreamBarrier>(stream.get());
    ASSERT_EQ(failure(whorlAllReduce(values.data(), values.data(), 100, whorlInt32, whorlSum, comm,
                                     stream.get()),
                      comm),
              "");
    std::thread opener([&] {
      if (!barrier) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      opened.store(1);
      barrier->open();
    });
    EXPECT_EQ(failure(whorlCommFinalize(comm), comm), "");
    EXPECT_EQ(opened.load(), 1U);
    opener.join();
    EXPECT_EQ(values.read<std::int32_t>(stream.get())[99], 2);
  };
  EXPECT_EQ(run_world(2, body), "");
}

TEST(DeviceProcessesOrder, ABarrierIsForStreams) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    std::unique_ptr<StreamBarrier> barrier;
    if (context.rank == 0) barrier = std::make_unique<StreamBarrier>(stream.get());
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
      // One rank keeps its buffers while the others use two pairs of buffers.
      std::array<std::unique_ptr<DeviceCase>, 2> cases;
      for (auto& one : cases) {
        one = std::make_unique<DeviceCase>(
            CollectiveCase{.kind = round % 3 == 0 ? Kind::kAllGather : Kind::kAllReduce,
                           .count = 5000U + static_cast<unsigned>(round % 2) * 1000,
                           .op = round % 2 == 0 ? whorlSum : whorlMax},
            context.rank, context.nranks, comm, stream.get());
        if (context.rank != 0) {
          EXPECT_EQ(one->check(), "");
          one.reset();
        }
      }
      for (auto& one : cases) {
        if (one == nullptr) continue;
        EXPECT_EQ(one->check(), "");
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
      for (const Kind kind : CollectiveCase::kKinds) {
        const CollectiveCase c{.kind = kind, .count = 5000};
        if ((context.rank + turn++) % 3 != 0 || round == 2) {
          check_case(c, context, comm, stream.get());
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

// Checks that memory that no other process can map is used where it is the leader's own.
TEST(DeviceProcessesMemory, OfAPoolIsExchangedByTheHostUnlessItIsTheLeaders) {
  for (const int owner : {0, 1}) {
    const auto body = [=](RankContext& context, whorlComm_t comm) {
      const DeviceQueue stream;
      const DeviceCopy plain(std::vector<std::int32_t>(3000, 1), stream.get());
      const auto own = reinterpret_cast<CUdeviceptr>(plain.data());
      CUdeviceptr pooled = 0;
      ASSERT_EQ(cuMemAllocAsync(&pooled, 12'000, stream.get()), CUDA_SUCCESS);
      ASSERT_EQ(cuMemcpyAsync(pooled, own, 12'000, stream.get()), CUDA_SUCCESS);
      auto* const data = reinterpret_cast<void*>(context.rank == owner ? pooled : own);
      ASSERT_EQ(
          failure(whorlAllReduce(data, data, 3000, whorlInt32, whorlSum, comm, stream.get()), comm),
          "");
      if (context.rank == owner) {
        ASSERT_EQ(cuMemcpyAsync(own, pooled, 12'000, stream.get()), CUDA_SUCCESS);
      }
      EXPECT_EQ(plain.read<std::int32_t>(stream.get()), std::vector<std::int32_t>(3000, 2));
      EXPECT_EQ(host_was_used(comm), owner != 0);
    };
    EXPECT_EQ(run_world(2, body), "");
  }
}

TEST(DeviceProcessesMemory, IsMappedByTheLeaderWhichAloneLaunchesKernels) {
  if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    int operations = 0;
    for (const std::size_t count : {1U, 5000U, 3'000'000U}) {
      check_case({.count = count}, context, comm, stream.get());
      ++operations;
    }
    EXPECT_EQ(launches(), context.rank == 0 ? operations : 0);
    EXPECT_EQ(mapped_memory() > 0, context.rank == 0);
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(3, body), "");
}

TEST(DeviceProcessesMemory, IsExchangedByTheHostOnlyWhileTheLeaderCannotMapIt) {
  if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  const auto body = [](RankContext& context, whorlComm_t comm) {
    constexpr int kRefused = 12;
    const DeviceQueue stream;
    const DeviceCopy a(std::vector<std::int32_t>(3000, 1), stream.get());
    const DeviceCopy b(std::vector<std::int32_t>(3000, 1), stream.get());
    refuse_ipc(context.rank == 0 ? kRefused : 1000); // the other ranks map nothing
    const auto launched_by = [&](const DeviceCopy& values) {
      const long before = launches();
      EXPECT_EQ(failure(whorlAllReduce(values.data(), values.data(), 3000, whorlInt32, whorlSum,
                                       comm, stream.get()),
                        comm),
                "");
      return launches() - before;
    };
    for (int i = 0; i < kRefused; ++i) EXPECT_EQ(launched_by(a), 0);
    for (const DeviceCopy* values : {&b, &a}) {
      EXPECT_EQ(launched_by(*values), context.rank == 0 ? 1 : 0);
    }
    EXPECT_EQ(a.read<std::int32_t>(stream.get()), std::vector<std::int32_t>(3000, 1 << 13));
    EXPECT_EQ(b.read<std::int32_t>(stream.get()), std::vector<std::int32_t>(3000, 2));
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
    check_case({.count = 9000}, context, comm, stream.get());
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
    EXPECT_FALSE(host_was_used(other)); // the split was an operation of the first
    EXPECT_EQ(whorlCommDestroy(other), whorlSuccess);
  };
  EXPECT_EQ(run_world(2, body), "");
}

TEST(DeviceProcessesGroups, AThreadMayActForSeveralRanksOfItsProcess) {
  const auto body = [](RankContext&, auto& comms, const auto& streams) {
    std::vector<std::unique_ptr<DeviceCopy>> buffers;
    for (const DeviceQueue& stream : streams) {
      buffers.push_back(
          std::make_unique<DeviceCopy>(std::vector<std::int32_t>(50'000, 1), stream.get()));
    }
    for (int round = 0; round < 5; ++round) {
      whorlGroupStart();
      for (int twice = 0; twice < 2; ++twice) {
        for (std::size_t i = 0; i < 2; ++i) {
          whorlAllReduce(buffers[i]->data(), buffers[i]->data(), 50'000, whorlInt32, whorlSum,
                         comms[i], streams[i].get());
        }
      }
      ASSERT_EQ(failure(whorlGroupEnd(), comms[0]), "");
    }
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(buffers[i]->read<std::int32_t>(streams[i].get()),
                std::vector<std::int32_t>(50'000, 1 << 20));
      EXPECT_FALSE(host_was_used(comms[i]));
    }
  };
  EXPECT_EQ(run_pairs(body), "");
}

} // namespace
} // namespace whorl::test
