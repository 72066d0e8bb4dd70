// Tests of collectives of processes with one device each: kernels that interpret schedules exchange
// messages through memory that is mapped by IPC. Built with pretended devices, see
// tests/support/fake_cuda. Only the processes that are ranks use the driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/device_blocks.h"
#include "tests/support/device_case.h"
#include "tests/support/device_peers.h"

namespace whorl::test {
namespace {

class DevicePeersOf : public DevicePeers, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DevicePeersOf, ::testing::Values(2, 3, 4));

TEST_P(DevicePeersOf, DoEveryCollectiveWithoutTheHost) {
  EXPECT_EQ(
      run(GetParam(),
          [](RankContext& context, whorlComm_t comm) {
            const DeviceQueue stream;
            const std::vector<std::size_t> counts{1, 1001, 20'003};
            EXPECT_EQ(
                run_every_collective(context.rank, context.nranks, comm, stream.get(), counts), "");
            EXPECT_EQ(interpreter_launches(), cases_of_every_collective(counts));
            EXPECT_FALSE(host_was_used(comm));
          }),
      "");
}

TEST_P(DevicePeersOf, BlocksMayDifferInSize) {
  EXPECT_EQ(
      run(GetParam(),
          [](RankContext& context, whorlComm_t comm) {
            const DeviceQueue stream;
            const DeviceCaller caller{context.rank, context.nranks, comm, stream.get()};
            EXPECT_EQ(both_forms(caller), "");
            EXPECT_EQ(every_form(caller, true), "");
            const std::vector<std::size_t> counts{1001};
            const long before = interpreter_launches();
            EXPECT_EQ(
                run_every_collective(context.rank, context.nranks, comm, stream.get(), counts), "");
            EXPECT_EQ(interpreter_launches() - before, cases_of_every_collective(counts));
          }),
      "");
}

TEST_P(DevicePeersOf, EveryReductionAndAlgorithm) {
  for (const char* const algorithm : {"oneshot", "twoshot", "ring", "doubling", "tree"}) {
    EXPECT_EQ(run(GetParam(),
                  [](RankContext& context, whorlComm_t comm) {
                    const DeviceQueue stream;
                    const std::vector<std::pair<whorlDataType_t, whorlRedOp_t>> cases{
                        {whorlFloat32, whorlSum},
                        {whorlBfloat16, whorlAvg},
                        {whorlUint8, whorlBxor},
                        {whorlFloat64, whorlMin}};
                    for (const auto& [type, op] : cases) {
                      EXPECT_EQ(run_case({.count = 777, .type = type, .op = op}, context.rank,
                                         context.nranks, comm, stream.get()),
                                "");
                    }
                    EXPECT_FALSE(host_was_used(comm));
                  },
                  {{"WHORL_ALGO", algorithm}}),
              "")
        << algorithm;
  }
}

TEST_F(DevicePeers, BlocksWithWrongCountsNameBothRanks) {
  EXPECT_EQ(run(3,
                [](RankContext& context, whorlComm_t comm) {
                  const DeviceQueue stream;
                  EXPECT_EQ(wrong_counts({context.rank, 3, comm, stream.get()}), "");
                }),
            "");
}

TEST_F(DevicePeers, StreamsRunAheadOfEachOther) {
  constexpr std::size_t kCount = 5000;
  constexpr int kRounds = 12;
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue first, second;
    const DeviceCopy values(std::vector<std::int32_t>(kCount, 1), first.get());
    ASSERT_EQ(failure(sum_up(values, kCount, comm, first), comm), "");
    // Calls do not wait for streams: all calls are queued before the second operation may begin.
    std::unique_ptr<StreamBarrier> barrier;
    if (context.rank == 1) barrier = std::make_unique<StreamBarrier>(first.get());
    for (int round = 1; round < kRounds; ++round) { // ranks change streams at different times
      const DeviceQueue& stream = (round + context.rank) % 3 == 0 ? second : first;
      ASSERT_EQ(failure(sum_up(values, kCount, comm, stream), comm), "");
    }
    context.barrier();
    if (barrier) barrier->open();
    first.synchronize();
    EXPECT_EQ(values.read<std::int32_t>(second.get()),
              std::vector<std::int32_t>(kCount, 1 << kRounds));
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run(2, body), "");
}

TEST_F(DevicePeers, MixDeviceAndHostAndBarriers) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    for (int round = 0; round < 6; ++round) {
      const CollectiveCase c{.count = 900, .type = whorlFloat64};
      EXPECT_EQ(run_case(c, context.rank, context.nranks, comm, stream.get(),
                         round % 2 == 1 || context.rank != round / 2),
                "");
      EXPECT_EQ(failure(whorlBarrier(comm, stream.get()), comm), "");
    }
    EXPECT_EQ(interpreter_launches(), 3);
  };
  EXPECT_EQ(run(3, body), "");
}

TEST_F(DevicePeers, MemoryOfAPoolNeedsNoHost) {
  const auto body = [](RankContext&, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy plain(std::vector<std::int32_t>(3000, 1), stream.get());
    CUdeviceptr pooled = 0;
    ASSERT_EQ(cuMemAllocAsync(&pooled, 12'000, stream.get()), CUDA_SUCCESS);
    auto* const result = reinterpret_cast<void*>(pooled);
    for (int round = 0; round < 2; ++round) {
      const long before = interpreter_launches();
      ASSERT_EQ(failure(whorlAllReduce(plain.data(), result, 3000, whorlInt32, whorlSum, comm,
                                       stream.get()),
                        comm),
                "");
      EXPECT_EQ(interpreter_launches() - before, 1);
    }
    ASSERT_EQ(
        cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(plain.data()), pooled, 12'000, stream.get()),
        CUDA_SUCCESS);
    EXPECT_EQ(plain.read<std::int32_t>(stream.get()), std::vector<std::int32_t>(3000, 2));
  };
  EXPECT_EQ(run(2, body), "");
}

TEST_F(DevicePeers, TwoCommunicatorsInAnyOrder) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    whorlComm_t other = nullptr;
    ASSERT_EQ(failure(whorlCommSplit(comm, 0, -context.rank, &other, nullptr), comm), "");
    const DeviceQueue first, second;
    const DeviceCopy a(std::vector<std::int32_t>(2500, 1), first.get());
    const DeviceCopy b(std::vector<std::int32_t>(2500, 1), second.get());
    for (int round = 0; round < 8; ++round) {
      const bool swapped = (round + context.rank) % 2 == 0;
      whorlGroupStart();
      for (const bool one : {swapped, !swapped}) {
        sum_up(one ? a : b, 2500, one ? comm : other, one ? first : second);
      }
      ASSERT_EQ(failure(whorlGroupEnd(), comm), "");
    }
    EXPECT_EQ(a.read<std::int32_t>(first.get()), std::vector<std::int32_t>(2500, 256));
    EXPECT_EQ(b.read<std::int32_t>(second.get()), std::vector<std::int32_t>(2500, 256));
    EXPECT_EQ(whorlCommDestroy(other), whorlSuccess);
  };
  EXPECT_EQ(run(2, body), "");
}

class DevicePeersInPairs : public DevicePeers {
 protected:
  /// Runs two processes of two ranks each, on four devices or on one; `launches` is the number of
  /// kernels that exchange messages in each process.
  static std::string run(int devices, long launches) {
    constexpr int kEach = 2;
    const auto outcomes = run_ranks(2, Mode::kProcesses, [=](RankContext& context) {
      const whorlUniqueId id = shared_id(context);
      struct Rank {
        explicit Rank(int device) : context(device) {}
        DeviceContext context;
        DeviceQueue stream;
        DeviceCopy values{std::vector<std::int32_t>(5000, 1), stream.get()};
        whorlComm_t comm = nullptr;
      };
      std::vector<std::unique_ptr<Rank>> ranks;
      for (int i = 0; i < kEach; ++i) {
        ranks.push_back(std::make_unique<Rank>((kEach * context.rank + i) % devices));
      }
      whorlGroupStart();
      for (int i = 0; i < kEach; ++i) {
        whorlCommInitRank(&ranks[static_cast<std::size_t>(i)]->comm, 2 * kEach, id,
                          kEach * context.rank + i);
      }
      ASSERT_EQ(failure(whorlGroupEnd()), "");
      for (int round = 0; round < 4; ++round) {
        whorlGroupStart();
        for (const auto& rank : ranks) sum_up(rank->values, 5000, rank->comm, rank->stream);
        ASSERT_EQ(failure(whorlGroupEnd(), ranks[0]->comm), "");
      }
      for (const auto& rank : ranks) {
        EXPECT_EQ(rank->values.read<std::int32_t>(rank->stream.get()),
                  std::vector<std::int32_t>(5000, 256));
        EXPECT_FALSE(host_was_used(rank->comm));
      }
      EXPECT_EQ(interpreter_launches(), launches);
      for (const auto& rank : ranks) EXPECT_EQ(whorlCommDestroy(rank->comm), whorlSuccess);
      while (!ranks.empty()) ranks.pop_back(); // contexts in order
    });
    return failures_of(outcomes);
  }
};

// Checks ranks that access each other's memory by peer access.
TEST_F(DevicePeersInPairs, ReachEachOther) { EXPECT_EQ(run(4, 4 * 2), ""); }

// Checks such ranks on one device whose driver runs kernels of several processes together: kernels
// of one process could still wait for launches that have not begun, so the leader does the work.
TEST_F(DevicePeersInPairs, HaveALeaderThroughMps) {
  const ScopedEnv settings{{"FAKE_CUDA_MPS", "1"}, {"WHORL_DEVICE_ALGO", "schedule"}};
  EXPECT_EQ(run(1, 0), "");
}

// Checks processes that each have a device 0, as with CUDA_VISIBLE_DEVICES.
TEST_F(DevicePeers, MayBeTheOnlyDeviceThatAProcessSees) {
  const auto outcomes = run_ranks(3, Mode::kProcesses, [](RankContext& context) {
    const DeviceContext device;
    whorlComm_t comm = join(context, {{"FAKE_CUDA_FIRST_DEVICE", std::to_string(context.rank)}});
    ASSERT_NE(comm, nullptr);
    const DeviceQueue stream;
    EXPECT_EQ(run_case({.count = 900}, context.rank, context.nranks, comm, stream.get()), "");
    EXPECT_EQ(interpreter_launches(), 1);
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST_F(DevicePeers, AreServedByTheHostWhereTheyCannotReachEachOther) {
  for (const auto& [ranks, devices, environment] : std::vector<std::tuple<int, int, Environment>>{
           {2, 2, {{"FAKE_CUDA_NO_PEERS", "1"}}},
           {2, 2, {{"WHORL_DEVICE_ALGO", "host"}}},
           {2, 2, {{"WHORL_DEVICE_ALGO", "fused"}}},
           {2, 2, {{"FAKE_CUDA_PROCESSORS", "1"}}}, // no room for the kernels
           {3, 2, {}}}) { // kernels of two processes on one device would take turns
    const auto body = [](RankContext& context, whorlComm_t comm) {
      const DeviceQueue stream;
      for (int round = 0; round < 2; ++round) {
        EXPECT_EQ(run_case({.count = 900}, context.rank, context.nranks, comm, stream.get()), "");
      }
      EXPECT_TRUE(host_was_used(comm));
      EXPECT_EQ(interpreter_launches(), 0);
    };
    EXPECT_EQ(run_world(ranks, body, environment, devices), "");
  }
}

// Checks memory that cannot be shared, on two devices and on one, where rank 0 has no need to
// share.
TEST_F(DevicePeers, CallsThatTheHostServesWaitForNobody) {
  for (const int devices : {2, 1}) {
    const auto body = [](RankContext& context, whorlComm_t comm) {
      const DeviceQueue stream;
      CUdeviceptr pooled = 0;
      ASSERT_EQ(cuMemAllocAsync(&pooled, 400, stream.get()), CUDA_SUCCESS);
      auto* const values = reinterpret_cast<void*>(pooled);
      const auto sum = [&] {
        return failure(
            whorlAllReduce(values, values, 100, whorlInt32, whorlSum, comm, stream.get()), comm);
      };
      ASSERT_EQ(sum(), "");
      stream.synchronize();
      if (context.rank == 1) {
        EXPECT_EQ(sum(), "");
      }
      context.barrier();
      if (context.rank != 1) {
        EXPECT_EQ(sum(), "");
      }
      stream.synchronize();
      EXPECT_TRUE(host_was_used(comm));
    };
    EXPECT_EQ(run_world(3, body, {{"WHORL_TIMEOUT_MS", "20000"}}, devices), "") << devices;
  }
}

TEST_F(DevicePeers, AreServedByTheHostWhereOneRankCannotMapTheMemory) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    if (context.rank == 1) refuse_ipc(100);
    for (int round = 0; round < 10; ++round) {
      EXPECT_EQ(run_case({.count = 900}, context.rank, context.nranks, comm, stream.get()), "");
      if (round == 8) refuse_ipc(0); // too late
    }
    EXPECT_EQ(interpreter_launches(), 0);
  };
  EXPECT_EQ(run(3, body), "");
}

// Checks that kernels carry out all operations once the memory is mapped: other ranks still write
// to the memory of a rank that has all its data.
TEST_F(DevicePeers, AreNotServedByTheHostOnceTheMemoryCanBeMapped) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    if (context.rank == 1) refuse_ipc(2);
    for (int round = 0; round < 4; ++round) {
      EXPECT_EQ(run_case({.count = 900}, context.rank, context.nranks, comm, stream.get()), "");
      EXPECT_EQ(interpreter_launches(), std::max(round - 1, 0));
    }
  };
  EXPECT_EQ(run(3, body), "");
}

// Checks a new communicator whose memory may lie where the previous one's memory was.
TEST_F(DevicePeers, MayMakeACommunicatorBeforeAllHaveDestroyedTheOneBefore) {
  const auto outcomes = run_ranks(2, Mode::kProcesses, [](RankContext& context) {
    const DeviceContext device(context.rank);
    const DeviceQueue stream;
    const auto sum = [&](whorlComm_t comm) {
      return run_case({.count = 900}, context.rank, context.nranks, comm, stream.get());
    };
    whorlComm_t before = join(context, {});
    EXPECT_EQ(sum(before), "");
    context.barrier();
    if (context.rank == 1) {
      EXPECT_EQ(whorlCommDestroy(before), whorlSuccess);
    }
    whorlComm_t comm = join(context, {});
    EXPECT_EQ(sum(comm), "");
    if (context.rank == 0) {
      EXPECT_EQ(whorlCommDestroy(before), whorlSuccess);
    }
    const long launches = interpreter_launches();
    EXPECT_EQ(sum(comm), "");
    EXPECT_EQ(interpreter_launches() - launches, 1);
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST_F(DevicePeers, ARankThatIsDestroyedWaitsForTheKernelsOfOthers) {
  const auto outcomes = run_ranks(2, Mode::kProcesses, [](RankContext& context) {
    const DeviceContext device(context.rank);
    whorlComm_t comm = join(context, {});
    ASSERT_NE(comm, nullptr);
    const DeviceQueue stream;
    const DeviceCopy values(std::vector<std::int32_t>(100, context.rank), stream.get());
    const auto broadcast = [&] {
      return failure(
          whorlBroadcast(values.data(), values.data(), 100, whorlInt32, 0, comm, stream.get()),
          comm);
    };
    ASSERT_EQ(broadcast(), "");
    stream.synchronize();
    context.barrier();
    if (context.rank == 1) hold_interpreters(1);
    ASSERT_EQ(broadcast(), ""); // a slot takes the message, so rank 0 is done at once
    if (context.rank == 0) {
      stream.synchronize();
      EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
      *reinterpret_cast<std::atomic<std::uint32_t>*>(context.shared()) = 1;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_EQ(*reinterpret_cast<std::atomic<std::uint32_t>*>(context.shared()), 0U);
      hold_interpreters(-1);
      EXPECT_EQ(values.read<std::int32_t>(stream.get()), std::vector<std::int32_t>(100, 0));
      EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
    }
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

} // namespace
} // namespace whorl::test
