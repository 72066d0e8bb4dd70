// Tests of collectives of processes that share a device, captured into graphs and replayed;
// device_replays_errors_test.cc tests the errors.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/device_graph.h"
#include "tests/support/device_processes.h"
#include "tests/support/pretended_device.h"

namespace whorl::test {
namespace {

using Values = std::vector<std::uint32_t>;

/// Returns rank `rank`'s input before replay `round`.
std::uint32_t value(int round, int rank, std::size_t i) {
  return (static_cast<std::uint32_t>(i) + 1) * 2654435761U +
         static_cast<std::uint32_t>(round) * 40503U + static_cast<std::uint32_t>(rank) * 97U;
}

/// One operation of each collective, on buffers of its own.
class Everything {
 public:
  Everything(std::size_t count, const RankContext& context, whorlComm_t comm, CUstream stream)
      : n_(static_cast<std::size_t>(context.nranks)),
        rank_(context.rank),
        count_(count),
        comm_(comm),
        stream_(stream),
        staged_(n_ * count),
        in_(Values(n_ * count), stream),
        in_place_(Values(count), stream),
        sum_(Values(count), stream),
        part_(Values(count), stream),
        all_(Values(n_ * count), stream),
        root_(Values(count), stream),
        exchanged_(Values(n_ * count), stream) {}

  void queue() {
    const auto call = [&](whorlResult_t result) { EXPECT_EQ(failure(result, comm_), ""); };
    const auto type = whorlUint32;
    void* const in = in_.data();
    call(whorlAllReduce(in, sum_.data(), count_, type, whorlSum, comm_, stream_));
    call(
        whorlAllReduce(in_place_.data(), in_place_.data(), count_, type, whorlSum, comm_, stream_));
    call(whorlReduceScatter(in, part_.data(), count_, type, whorlSum, comm_, stream_));
    call(whorlAllGather(in, all_.data(), count_, type, comm_, stream_));
    call(whorlBroadcast(in, root_.data(), count_, type, root(), comm_, stream_));
    call(whorlBarrier(comm_, stream_));
    call(whorlAlltoAll(in, exchanged_.data(), count_, type, comm_, stream_));
  }

  /// Queues copies of new inputs.
  void set(int round) {
    for (std::size_t i = 0; i < staged_.size(); ++i) staged_[i] = value(round, rank_, i);
    for (const auto& [to, values] : {std::pair(&in_, n_ * count_), std::pair(&in_place_, count_)}) {
      EXPECT_EQ(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to->data()),
                              reinterpret_cast<CUdeviceptr>(staged_.data()), 4 * values, stream_),
                CUDA_SUCCESS);
    }
  }

  /// Waits for the stream. Returns "", or the first error.
  std::string check(int round) const {
    const auto sum = [&](std::size_t i) {
      std::uint32_t total = 0;
      for (int rank = 0; rank < static_cast<int>(n_); ++rank) total += value(round, rank, i);
      return total;
    };
    const auto own = static_cast<std::size_t>(rank_) * count_;
    std::string wrong;
    const auto expect = [&](const char* what, const DeviceCopy& got, auto&& wanted) {
      const auto values = got.read<std::uint32_t>(stream_);
      for (std::size_t i = 0; wrong.empty() && i < values.size(); ++i) {
        if (values[i] == wanted(i)) continue;
        wrong = std::string(what) + ", round " + std::to_string(round) + ", element " +
                std::to_string(i) + ": " + std::to_string(values[i]);
      }
    };
    expect("allreduce", sum_, sum);
    expect("allreduce in place", in_place_, sum);
    expect("reduce-scatter", part_, [&](std::size_t i) { return sum(own + i); });
    expect("all-gather", all_,
           [&](std::size_t i) { return value(round, static_cast<int>(i / count_), i % count_); });
    expect("broadcast", root_, [&](std::size_t i) { return value(round, root(), i); });
    expect("alltoall", exchanged_, [&](std::size_t i) {
      return value(round, static_cast<int>(i / count_), own + i % count_);
    });
    return wrong;
  }

 private:
  int root() const { return static_cast<int>(n_) - 1; }

  const std::size_t n_;
  const int rank_;
  const std::size_t count_;
  whorlComm_t comm_;
  CUstream stream_;
  Values staged_;
  const DeviceCopy in_, in_place_, sum_, part_, all_, root_, exchanged_;
};

whorlResult_t sum_up(const DeviceCopy& values, std::size_t count, whorlComm_t comm,
                     CUstream stream) {
  return whorlAllReduce(values.data(), values.data(), count, whorlUint32, whorlSum, comm, stream);
}

class DeviceReplays : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceReplays, ::testing::Values(2, 3, 4));

TEST_P(DeviceReplays, DoEveryCollectiveAgainAndAgain) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    std::mt19937 random(static_cast<unsigned>(context.rank));
    for (const auto& [count, rounds] : {std::pair(3U, 200), std::pair(40'001U, 20)}) {
      Everything everything(count, context, comm, stream.get());
      const DeviceGraph graph(stream.get(), [&] { everything.queue(); });
      for (int round = 0; round < rounds; ++round) {
        everything.set(round);
        if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        graph.launch(stream.get());
        ASSERT_EQ(everything.check(round), "");
        if (round % 7 != 0) continue;
        everything.set(-round);
        everything.queue(); // outside the graph
        ASSERT_EQ(everything.check(-round), "");
      }
    }
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(GetParam(), body), "");
}

TEST_P(DeviceReplays, AreQueuedAheadAmongOtherOperations) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(Values(1000, 1), stream.get());
    const auto sum = [&] {
      ASSERT_EQ(failure(sum_up(values, 1000, comm, stream.get()), comm), "");
    };
    const DeviceGraph one(stream.get(), sum);
    const DeviceGraph three(stream.get(), [&] {
      for (int i = 0; i < 3; ++i) sum();
    });
    std::uint32_t expected = 1;
    const auto grow = [&](int sums) {
      while (sums-- > 0) expected *= static_cast<std::uint32_t>(context.nranks);
    };
    if (context.rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::mt19937 random(1); // equal on all ranks
    for (int i = 0; i < 300; ++i) {
      const auto turn = random() % 3;
      if (turn == 0) sum();
      if (turn == 1) one.launch(stream.get());
      if (turn == 2) three.launch(stream.get());
      grow(turn == 2 ? 3 : 1);
    }
    EXPECT_EQ(values.read<std::uint32_t>(stream.get()), Values(1000, expected));
  };
  EXPECT_EQ(run_world(GetParam(), body), "");
}

TEST(DeviceReplayedOperations, MayBeTheFirstOfACommunicator) {
  const auto body = [](RankContext&, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(Values(50'000, 1), stream.get());
    const DeviceGraph graph(stream.get(), [&] {
      EXPECT_EQ(failure(sum_up(values, 50'000, comm, stream.get()), comm), "");
    });
    for (int i = 0; i < 5; ++i) graph.launch(stream.get());
    EXPECT_EQ(values.read<std::uint32_t>(stream.get()), Values(50'000, 32));
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(2, body), "");
}

TEST(DeviceReplayedOperations, AreNotCarriedOutByTheCapture) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(Values(50, 1), stream.get());
    {
      const DeviceGraph never(stream.get(), [&] {
        EXPECT_EQ(failure(sum_up(values, 50, comm, stream.get()), comm), "");
      });
    }
    EXPECT_EQ(values.read<std::uint32_t>(stream.get()), Values(50, 1));
    context.barrier();
    EXPECT_EQ(failure(sum_up(values, 50, comm, stream.get()), comm), "");
    EXPECT_EQ(values.read<std::uint32_t>(stream.get()), Values(50, 2));
  };
  EXPECT_EQ(run_world(2, body), "");
}

TEST(DeviceReplayedOperations, OfABarrierHoldStreamsUp) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceGraph graph(
        stream.get(), [&] { EXPECT_EQ(failure(whorlBarrier(comm, stream.get()), comm), ""); });
    for (int round = 0; round < 6; ++round) {
      const bool last = round % 3 == context.rank;
      if (!last) graph.launch(stream.get());
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (!last) {
        EXPECT_EQ(cuStreamQuery(stream.get()), CUDA_ERROR_NOT_READY);
      }
      context.barrier();
      if (last) graph.launch(stream.get());
      stream.synchronize();
      context.barrier();
    }
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(3, body), "");
}

TEST(DeviceReplayedOperations, OfTwoCommunicatorsInOneGraph) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    whorlComm_t other = nullptr;
    ASSERT_EQ(failure(whorlCommSplit(comm, 0, -context.rank, &other, nullptr), comm), "");
    const DeviceQueue stream;
    const DeviceCopy values(Values(30'000, 1), stream.get());
    const auto sum = [&](whorlComm_t one) {
      ASSERT_EQ(failure(sum_up(values, 30'000, one, stream.get()), one), "");
    };
    {
      const DeviceGraph graph(stream.get(), [&] {
        for (whorlComm_t one : {comm, other, comm}) sum(one);
      });
      for (int i = 0; i < 9; ++i) {
        graph.launch(stream.get());
        sum(i % 2 == 0 ? other : comm);
      }
      EXPECT_EQ(values.read<std::uint32_t>(stream.get()), Values(30'000, 0));
      stream.synchronize();
    }
    EXPECT_EQ(whorlCommDestroy(other), whorlSuccess);
  };
  EXPECT_EQ(run_world(2, body), "");
}

// Checks that operations of several streams run one after another, since they share the same words.
TEST(DeviceReplayedOperations, OfSeveralStreamsFollowEachOther) {
  const auto body = [](RankContext&, whorlComm_t comm) {
    const DeviceQueue first, second, third;
    const DeviceCopy a(Values(20'000, 1), first.get()), b(Values(20'000, 1), first.get());
    CUevent fork = nullptr, join = nullptr;
    for (CUevent* const event : {&fork, &join}) {
      ASSERT_EQ(cuEventCreate(event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    }
    const DeviceGraph graph(first.get(), [&] {
      EXPECT_EQ(cuEventRecord(fork, first.get()), CUDA_SUCCESS);
      EXPECT_EQ(cuStreamWaitEvent(second.get(), fork, 0), CUDA_SUCCESS);
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(failure(sum_up(a, 20'000, comm, first.get()), comm), "");
        if (i % 2 == 1) {
          const DeviceGraph between(third.get(), [&] {
            EXPECT_EQ(failure(sum_up(a, 20'000, comm, third.get()), comm), "");
          });
        }
        EXPECT_EQ(failure(sum_up(b, 20'000, comm, second.get()), comm), "");
      }
      EXPECT_EQ(cuEventRecord(join, second.get()), CUDA_SUCCESS);
      EXPECT_EQ(cuStreamWaitEvent(first.get(), join, 0), CUDA_SUCCESS);
    });
    for (int i = 0; i < 10; ++i) graph.launch(first.get());
    EXPECT_EQ(a.read<std::uint32_t>(first.get()), Values(20'000, 1U << 30U));
    EXPECT_EQ(b.read<std::uint32_t>(first.get()), Values(20'000, 1U << 30U));
    for (const CUevent event : {fork, join}) EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
  };
  EXPECT_EQ(run_world(2, body), "");
}

TEST(DeviceReplayedOperations, OfRanksOfOneProcessInGraphsOfTheirOwn) {
  const auto body = [](RankContext&, auto& comms, const auto& streams) {
    std::array<std::optional<DeviceCopy>, 2> values;
    std::array<CUgraphExec, 2> graphs{};
    for (std::size_t i = 0; i < 2; ++i) {
      values[i].emplace(Values(70'000, 1), streams[i].get());
      ASSERT_EQ(cuStreamBeginCapture(streams[i].get(), CU_STREAM_CAPTURE_MODE_RELAXED),
                CUDA_SUCCESS);
    }
    whorlGroupStart();
    for (std::size_t i = 0; i < 2; ++i) sum_up(*values[i], 70'000, comms[i], streams[i].get());
    ASSERT_EQ(failure(whorlGroupEnd(), comms[0]), "");
    for (std::size_t i = 0; i < 2; ++i) {
      CUgraph graph = nullptr;
      ASSERT_EQ(cuStreamEndCapture(streams[i].get(), &graph), CUDA_SUCCESS);
      ASSERT_EQ(cuGraphInstantiate(&graphs[i], graph, 0), CUDA_SUCCESS);
      EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    }
    for (int round = 0; round < 15; ++round) {
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(cuGraphLaunch(graphs[i], streams[i].get()), CUDA_SUCCESS);
      }
    }
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(values[i]->template read<std::uint32_t>(streams[i].get()),
                Values(70'000, 1U << 30U));
    }
    for (const CUgraphExec graph : graphs) EXPECT_EQ(cuGraphExecDestroy(graph), CUDA_SUCCESS);
  };
  EXPECT_EQ(run_pairs(body), "");
}

TEST(DeviceReplayedOperations, OfRanksOfOneProcessNeedGraphsOfTheirOwn) {
  const auto body = [](RankContext&, auto& comms, const auto& streams) {
    std::array<std::optional<DeviceCopy>, 2> values;
    for (std::size_t i = 0; i < 2; ++i) values[i].emplace(Values(50, 1), streams[i].get());
    CUevent event = nullptr;
    ASSERT_EQ(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    const auto sums = [&] {
      whorlGroupStart();
      for (std::size_t i = 0; i < 2; ++i) sum_up(*values[i], 50, comms[i], streams[i].get());
      return whorlGroupEnd();
    };
    const DeviceGraph empty(streams[0].get(), [&] {
      EXPECT_EQ(cuEventRecord(event, streams[0].get()), CUDA_SUCCESS);
      EXPECT_EQ(cuStreamWaitEvent(streams[1].get(), event, 0), CUDA_SUCCESS);
      EXPECT_EQ(sums(), whorlInvalidUsage);
      EXPECT_NE(std::string(whorlGetLastError(comms[0])).find("graphs of their own"),
                std::string::npos)
          << whorlGetLastError(comms[0]);
      EXPECT_EQ(cuEventRecord(event, streams[1].get()), CUDA_SUCCESS);
      EXPECT_EQ(cuStreamWaitEvent(streams[0].get(), event, 0), CUDA_SUCCESS);
    });
    EXPECT_EQ(failure(sums(), comms[0]), ""); // the refused call changed nothing
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(values[i]->template read<std::uint32_t>(streams[i].get()), Values(50, 4));
    }
    EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
  };
  EXPECT_EQ(run_pairs(body), "");
}

/// More buffers than the library keeps mapped, each in a driver block of its own.
class OtherBuffers {
 public:
  OtherBuffers(whorlComm_t comm, CUstream stream) : comm_(comm), stream_(stream) {}
  ~OtherBuffers() {
    for (const CUdeviceptr one : all_) EXPECT_EQ(cuMemFree(one), CUDA_SUCCESS);
  }
  void use() {
    constexpr std::size_t kBlock = std::size_t{2} << 20;
    for (int i = 0; i < 70; ++i) {
      CUdeviceptr& one = all_.emplace_back();
      ASSERT_EQ(cuMemAlloc(&one, kBlock), CUDA_SUCCESS);
      auto* const values = reinterpret_cast<void*>(one);
      ASSERT_EQ(
          failure(whorlAllReduce(values, values, 10, whorlUint32, whorlSum, comm_, stream_), comm_),
          "");
      EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS); // unused buffers are unmapped
    }
  }

 private:
  whorlComm_t comm_;
  CUstream stream_;
  std::vector<CUdeviceptr> all_;
};

TEST(DeviceReplayedMemory, StaysMappedAsLongAsTheGraphOfTheLeader) {
  if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(Values(100, 1), stream.get());
    const auto sum = [&] { ASSERT_EQ(failure(sum_up(values, 100, comm, stream.get()), comm), ""); };
    OtherBuffers others(comm, stream.get());
    sum();
    others.use();
    const long without = mapped_memory();
    const long pinned = without + (context.rank == 0 ? 1 : 0);
    std::optional<DeviceGraph> graph;
    graph.emplace(stream.get(), sum);
    others.use();
    EXPECT_EQ(mapped_memory(), pinned);
    for (int i = 0; i < 3; ++i) graph->launch(stream.get());
    EXPECT_EQ(values.read<std::uint32_t>(stream.get()), Values(100, 16));
    stream.synchronize();
    context.barrier();
    if (context.rank == 1) { // whose graph has no kernel
      graph.reset();
      wait_for_graphs_to_go();
    }
    others.use();
    EXPECT_EQ(mapped_memory(), pinned);
    context.barrier();
    graph.reset();
    wait_for_graphs_to_go();
    context.barrier();
    others.use();
    EXPECT_EQ(mapped_memory(), without);
    sum();
    EXPECT_EQ(values.read<std::uint32_t>(stream.get()), Values(100, 32));
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(2, body), "");
}

// Checks buffers of freed graphs: the driver may report a free after the next allocation.
TEST(DeviceReplayedMemory, ThatHasBeenFreedMakesRoom) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    std::optional<DeviceGraph> old;
    for (int round = 0; round < 30; ++round) {
      const DeviceCopy values(Values(1000, 1), stream.get());
      std::optional<DeviceGraph> graph;
      graph.emplace(stream.get(), [&] {
        ASSERT_EQ(failure(sum_up(values, 1000, comm, stream.get()), comm), "");
      });
      graph->launch(stream.get());
      EXPECT_EQ(values.read<std::uint32_t>(stream.get()), Values(1000, 2));
      context.barrier();
      if (round > 0) continue;
      old.emplace(stream.get(), [&] { // kept, but launched no more
        ASSERT_EQ(failure(sum_up(values, 1000, comm, stream.get()), comm), "");
      });
    }
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(2, body), "");
}

// Checks graphs that the driver destroys after their communicator is gone.
TEST(DeviceReplayedMemory, OfGraphsThatOutliveTheCommunicator) {
  if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  const auto outcomes = run_ranks(2, Mode::kProcesses, [](RankContext& context) {
    const DeviceContext device;
    whorlComm_t comm = join(context, {});
    const DeviceQueue stream;
    const DeviceCopy values(Values(100, 1), stream.get());
    std::optional<DeviceGraph> graph;
    graph.emplace(stream.get(),
                  [&] { EXPECT_EQ(failure(sum_up(values, 100, comm, stream.get()), comm), ""); });
    graph->launch(stream.get());
    EXPECT_EQ(values.read<std::uint32_t>(stream.get()), Values(100, 2));
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
    EXPECT_EQ(mapped_memory(), 0);
    graph.reset();
    wait_for_graphs_to_go();
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

// Checks a destroy during the last replay.
TEST(DeviceReplayedMemory, IsThereUntilTheReplayIsOver) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const DeviceCopy values(Values(100, 1), stream.get());
    const DeviceGraph graph(stream.get(), [&] {
      EXPECT_EQ(failure(sum_up(values, 100, comm, stream.get()), comm), "");
    });
    if (context.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    graph.launch(stream.get());
    std::this_thread::sleep_for(std::chrono::milliseconds(10)); // the replay has begun
    EXPECT_EQ(failure(whorlCommFinalize(comm), comm), "");
    EXPECT_EQ(values.read<std::uint32_t>(stream.get()), Values(100, 2));
  };
  EXPECT_EQ(run_world(2, body), "");
}

} // namespace
} // namespace whorl::test
