// Tests of collectives on memory from CUDA's virtual memory management, among processes that share
// a device; device_processes_test.cc tests them on other memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/system.h"
#include "tests/support/descriptors.h"
#include "tests/support/device_case.h"
#include "tests/support/device_graph.h"
#include "tests/support/device_processes.h"
#include "tests/support/mapped_memory.h"
#include "tests/support/pretended_device.h"

namespace whorl::test {
namespace {

using Kind = CollectiveCase::Kind;
using ::testing::HasSubstr;

/// Runs a case with its buffers in mapped memory, from `offset` on. Returns "", or the error.
std::string run_in(MappedMemory& memory, std::size_t offset, const CollectiveCase& c,
                   const RankContext& context, whorlComm_t comm, CUstream stream) {
  Buffers buffers(c, context.rank, context.nranks);
  if (offset + buffers.memory().size() > memory.bytes()) return "the test's memory is too small";
  memory.write(offset, buffers.memory(), stream);
  const auto error = failure(buffers.run_on(memory.data() + offset, comm, stream), comm);
  if (!error.empty()) return c.text() + ": " + error;
  memory.read(offset, buffers.memory(), stream);
  const std::string difference = buffers.check();
  return difference.empty() ? "" : c.text() + ": " + difference;
}

/// Runs an allreduce in place. Returns the number of kernels on the pretended device.
long sum_in(void* data, std::size_t n, whorlComm_t comm, CUstream stream) {
  const auto kernels = [] { return device_is_pretended() ? launches() : 0; };
  const long before = kernels();
  EXPECT_EQ(failure(whorlAllReduce(data, data, n, whorlInt32, whorlSum, comm, stream), comm), "");
  return kernels() - before;
}

void fill(MappedMemory& memory, std::size_t offset, std::size_t n, std::int32_t value,
          CUstream stream) {
  const std::vector<std::int32_t> values(n, value);
  memory.write(offset, std::as_bytes(std::span(values)), stream);
}

std::vector<std::int32_t> values_of(const MappedMemory& memory, std::size_t offset, std::size_t n,
                                    CUstream stream) {
  std::vector<std::int32_t> values(n);
  memory.read(offset, std::as_writable_bytes(std::span(values)), stream);
  return values;
}

class DeviceMappings : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceMappings, ::testing::Values(2, 3, 4));

TEST_P(DeviceMappings, AreMappedForEveryCollective) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    MappedMemory memory({1, 3, 2, 10, 1, 20}); // a buffer lies in one piece or in several
    for (const Kind kind : CollectiveCase::kKinds) {
      for (const std::size_t count : {1U, 1001U, 20'001U}) {
        for (const std::size_t offset : {std::size_t{256}, memory.unit() * 5 / 2}) {
          EXPECT_EQ(run_in(memory, offset,
                           {.kind = kind,
                            .count = count,
                            .type = count == 1001 ? whorlFloat16 : whorlInt32,
                            .root = context.nranks - 1},
                           context, comm, stream.get()),
                    "");
        }
      }
    }
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(GetParam(), body), "");
}

TEST(DeviceMappingsMemory, OfManyMappingsIsHandedOverInSeveralMessages) {
  constexpr std::size_t kMappings = 300;
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    MappedMemory memory(std::vector<std::size_t>(kMappings, 1));
    const std::size_t n = (memory.bytes() - 8) / 4;
    fill(memory, 4, n, context.rank + 1, stream.get());
    sum_in(memory.data() + 4, n, comm, stream.get());
    EXPECT_EQ(values_of(memory, 4, n, stream.get()), std::vector<std::int32_t>(n, 6));
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(3, body), "");
}

TEST(DeviceMappingsMemory, MayBeBesideOtherMemory) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    MappedMemory memory({2, 2});
    constexpr std::size_t kCount = 40'000;
    const DeviceCopy plain(std::vector<std::int32_t>(kCount, 7), stream.get());
    for (int round = 0; round < 6; ++round) {
      fill(memory, 0, kCount, 1 + round, stream.get());
      // The kind of a rank's buffers changes from round to round; in some rounds all ranks have the
      // same.
      const int mode = (round < 4 ? context.rank + round : round) % 3;
      const void* const in = mode == 2 ? plain.data() : memory.data();
      void* const out = mode == 0 ? memory.data() : plain.data();
      std::vector<std::int32_t> mine(kCount, 1 + round);
      if (mode == 2) {
        EXPECT_EQ(
            cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(plain.data()),
                          reinterpret_cast<CUdeviceptr>(mine.data()), 4 * kCount, stream.get()),
            CUDA_SUCCESS);
        stream.synchronize();
      }
      ASSERT_EQ(
          failure(whorlAllReduce(in, out, kCount, whorlInt32, whorlSum, comm, stream.get()), comm),
          "");
      const std::vector<std::int32_t> sum(kCount, 3 * (1 + round));
      EXPECT_EQ(mode == 0 ? values_of(memory, 0, kCount, stream.get())
                          : plain.read<std::int32_t>(stream.get()),
                sum);
    }
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(3, body), "");
}

TEST(DeviceMappingsMemory, ThatIsMappedAnewAtItsPlaceIsNotMistaken) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    MappedMemory memory({1, 1});
    const std::size_t n = memory.bytes() / 4;
    for (int round = 0; round < 100; ++round) {
      // The new memory has the old handles and addresses; the other ranks still map the old memory.
      if ((round + context.rank) % 3 == 0) memory.map_anew();
      fill(memory, 0, n, round + context.rank, stream.get());
      sum_in(memory.data(), n, comm, stream.get());
      ASSERT_EQ(values_of(memory, 0, n, stream.get()), std::vector<std::int32_t>(n, 2 * round + 1));
    }
    EXPECT_LT(virtual_memory(), 30); // the old memory has been released
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(2, body), "");
}

TEST(DeviceMappingsMemory, IsGivenBackWhenItHasNotBeenUsedForLong) {
  constexpr int kBuffers = 80; // more than the library keeps mapped
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    const long before = virtual_memory();
    {
      std::vector<std::unique_ptr<MappedMemory>> buffers;
      for (int i = 0; i < kBuffers; ++i) {
        buffers.push_back(std::make_unique<MappedMemory>(std::vector<std::size_t>{1, 1}));
        fill(*buffers.back(), 0, 20'000, i + context.rank, stream.get());
      }
      for (int round = 0; round < 2; ++round) {
        for (const auto& buffer : buffers) sum_in(buffer->data(), 20'000, comm, stream.get());
      }
      for (int i = 0; i < kBuffers; ++i) {
        ASSERT_EQ(values_of(*buffers[static_cast<std::size_t>(i)], 0, 20'000, stream.get()),
                  std::vector<std::int32_t>(20'000, 2 * (2 * i + 1)));
      }
    }
    // For each of the 64: two pieces that this rank holds; for the other rank's two pieces, two
    // mappings and a reservation. A piece kept only by a mapping counts, too.
    EXPECT_LE(virtual_memory() - before, 66 * 7);
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(2, body), "");
}

TEST(DeviceMappingsMemory, NothingIsLeftOfACommunicator) {
  const auto outcomes = run_ranks(3, Mode::kProcesses, [](RankContext& context) {
    const DeviceContext device;
    const DeviceQueue stream;
    for (int round = 0; round < 3; ++round) {
      const int descriptors = open_descriptors();
      const long before = virtual_memory();
      whorlComm_t comm = join(context, {});
      ASSERT_NE(comm, nullptr);
      {
        MappedMemory memory({1, 2, 1});
        fill(memory, 0, 50'000, 1, stream.get());
        if (round == 1 && context.rank == 0 && device_is_pretended()) refuse_ipc(1);
        for (int i = 0; i < 3; ++i) sum_in(memory.data(), 50'000, comm, stream.get());
        EXPECT_EQ(values_of(memory, 0, 50'000, stream.get()),
                  std::vector<std::int32_t>(50'000, 27));
      }
      EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
      EXPECT_EQ(virtual_memory(), before);
      // The library keeps some descriptors of its own from the first communicator on.
      if (round > 0) {
        EXPECT_EQ(open_descriptors(), descriptors);
      }
    }
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

// Checks a graph's memory, even after so many other runs that the library has forgotten it, and
// with new memory at its place in another graph.
TEST(DeviceMappingsMemory, StaysAsLongAsAGraphUsesIt) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    constexpr std::size_t kCount = 5000, kRuns = 1100; // capacity of MemoryExports
    const DeviceQueue stream;
    MappedMemory memory({1, 2, 1});
    const std::size_t offset = memory.unit() - 400;
    std::optional<DeviceGraph> graph;
    const auto capture = [&] {
      graph.emplace(stream.get(),
                    [&] { sum_in(memory.data() + offset, kCount, comm, stream.get()); });
    };
    const auto replay = [&](std::int32_t value) {
      fill(memory, offset, kCount, value, stream.get());
      graph->launch(stream.get());
      EXPECT_EQ(values_of(memory, offset, kCount, stream.get()),
                std::vector<std::int32_t>(kCount, 2 * value));
    };
    capture(); // the first operation on the memory
    replay(1);
    MappedMemory others(std::vector<std::size_t>(kRuns, 1));
    for (std::size_t run = 0; run < kRuns; ++run) {
      sum_in(others.data() + run * others.unit(), 1, comm, stream.get());
    }
    replay(2);
    sum_in(memory.data() + offset, kCount, comm, stream.get()); // has another id now
    sum_in(others.data(), 1, comm, stream.get()); // maps this run again and unmaps surplus runs
    replay(3);
    stream.synchronize();
    graph.reset();
    context.barrier();
    memory.map_anew();
    capture();
    replay(4);
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(2, body), "");
}

TEST(DeviceMappingsMemory, WithoutDescriptorsIsExchangedByTheHost) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    MappedMemory memory({2}, context.rank == 1 ? CU_MEM_HANDLE_TYPE_NONE
                                               : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    fill(memory, 0, 3000, context.rank, stream.get());
    for (int i = 0; i < 10; ++i) EXPECT_EQ(sum_in(memory.data(), 3000, comm, stream.get()), 0);
    EXPECT_EQ(values_of(memory, 0, 3000, stream.get()), std::vector<std::int32_t>(3000, 512));
    EXPECT_TRUE(host_was_used(comm));
    if (!device_is_pretended()) return;
    // Other memory is unaffected.
    const DeviceCopy plain(std::vector<std::int32_t>(3000, 1), stream.get());
    EXPECT_EQ(sum_in(plain.data(), 3000, comm, stream.get()), context.rank == 0 ? 1 : 0);
  };
  EXPECT_EQ(run_world(2, body), "");
}

/// System without descriptors for a pair of sockets.
class NoSocketPairs final : public System {
 public:
  int socket_pair(int, std::span<int, 2>) noexcept override { return -EMFILE; }
};

TEST(DeviceMappingsMemory, IsExchangedByTheHostWhereTheLeaderCannotReceive) {
  const auto outcomes = run_ranks(2, Mode::kProcesses, [](RankContext& context) {
    const DeviceContext device;
    NoSocketPairs none;
    std::optional<ScopedSystem> system;
    if (context.rank == 0) system.emplace(&none); // the leader
    whorlComm_t comm = join(context, {});
    system.reset();
    ASSERT_NE(comm, nullptr);
    const DeviceQueue stream;
    MappedMemory memory({2});
    fill(memory, 0, 3000, 1, stream.get());
    for (int i = 0; i < 10; ++i) EXPECT_EQ(sum_in(memory.data(), 3000, comm, stream.get()), 0);
    EXPECT_EQ(values_of(memory, 0, 3000, stream.get()), std::vector<std::int32_t>(3000, 1024));
    const DeviceCopy plain(std::vector<std::int32_t>(3000, 1), stream.get());
    sum_in(plain.data(), 3000, comm, stream.get());
    EXPECT_EQ(plain.read<std::int32_t>(stream.get()), std::vector<std::int32_t>(3000, 2));
    if (device_is_pretended()) {
      EXPECT_EQ(launches(), context.rank == 0 ? 1 : 0);
    }
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

/// Possible errors on the leader at the first operation.
enum class Failure { kImport, kFirstMapping, kLaterMapping };

class DeviceMappingsFailures : public ::testing::TestWithParam<Failure> {};
INSTANTIATE_TEST_SUITE_P(Of, DeviceMappingsFailures,
                         ::testing::Values(Failure::kImport, Failure::kFirstMapping,
                                           Failure::kLaterMapping));

TEST_P(DeviceMappingsFailures, OfTheLeaderLetsTheHostDoIt) {
  if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    MappedMemory memory({1, 1, 1});
    const std::size_t n = memory.bytes() / 4;
    fill(memory, 0, n, 1, stream.get());
    if (context.rank == 0) {
      if (GetParam() == Failure::kImport) refuse_ipc(1);
      if (GetParam() == Failure::kFirstMapping) allow_mappings(0);
      if (GetParam() == Failure::kLaterMapping) allow_mappings(4);
    }
    EXPECT_EQ(sum_in(memory.data(), n, comm, stream.get()), 0);
    stream.synchronize();
    EXPECT_TRUE(host_was_used(comm));
    allow_mappings(-1);
    context.barrier();
    // The library tries again.
    EXPECT_EQ(sum_in(memory.data(), n, comm, stream.get()), context.rank == 0 ? 1 : 0);
    EXPECT_EQ(values_of(memory, 0, n, stream.get()), std::vector<std::int32_t>(n, 9));
  };
  EXPECT_EQ(run_world(3, body), "");
}

TEST(DeviceMappingsErrors, ALowLimitOfDescriptorsIsNone) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer takes memory for invalid where it has no descriptors left";
#endif
  for (const int low_rank : {0, 1}) {
    const auto body = [=](RankContext& context, whorlComm_t comm) {
      const DeviceQueue stream;
      MappedMemory memory(std::vector<std::size_t>(70, 1));
      const std::size_t n = memory.bytes() / 4;
      fill(memory, 0, n, 1, stream.get());
      rlimit before{};
      ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
      if (context.rank == low_rank) { // cannot receive all descriptors, or make its own
        rlimit low = before;
        low.rlim_cur = static_cast<rlim_t>(open_descriptors()) + (context.rank == 0 ? 20 : 5);
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
      }
      sum_in(memory.data(), n, comm, stream.get());
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
      EXPECT_EQ(values_of(memory, 0, n, stream.get()), std::vector<std::int32_t>(n, 3));
      EXPECT_TRUE(host_was_used(comm));
      context.barrier();
      sum_in(memory.data(), n, comm, stream.get());
      EXPECT_EQ(values_of(memory, 0, n, stream.get()), std::vector<std::int32_t>(n, 9));
    };
    EXPECT_EQ(run_world(3, body), "") << low_rank;
  }
}

TEST(DeviceMappingsErrors, ADeadRankIsNamed) {
  constexpr int kRounds = 60; // rank 1 dies at any point of some round
  const auto outcomes = run_ranks(3, Mode::kProcesses, [](RankContext& context) {
    const DeviceContext device;
    whorlComm_t comm = join(context, {});
    ASSERT_NE(comm, nullptr);
    const DeviceQueue stream;
    std::vector<std::unique_ptr<MappedMemory>> buffers;
    for (int i = 0; i < kRounds; ++i) {
      buffers.push_back(std::make_unique<MappedMemory>(std::vector<std::size_t>(5, 1)));
    }
    context.barrier();
    std::optional<std::thread> end;
    if (context.rank == 2) {
      end.emplace([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        context.die();
      });
    }
    whorlResult_t result = whorlSuccess;
    for (int i = 0; i < kRounds && result == whorlSuccess; ++i) {
      void* const data = buffers[static_cast<std::size_t>(i)]->data();
      result = whorlAllReduce(data, data, 50'000, whorlInt32, whorlSum, comm, stream.get());
    }
    if (end) end->join();
    EXPECT_THAT(error_of(comm), HasSubstr("rank 2"));
    stream.synchronize();
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
  EXPECT_EQ(outcomes[0].failures + outcomes[1].failures, "");
  EXPECT_TRUE(outcomes[2].killed);
}

TEST(DeviceMappingsErrors, AnAbsentRankIsNamed) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    MappedMemory memory({1});
    fill(memory, 0, 5000, 1, stream.get());
    if (context.rank == 0) {
      EXPECT_EQ(whorlAllReduce(memory.data(), memory.data(), 5000, whorlInt32, whorlSum, comm,
                               stream.get()),
                whorlRemoteError);
      EXPECT_THAT(whorlGetLastError(comm), HasSubstr("waiting for rank 1"));
    }
    context.barrier();
  };
  EXPECT_EQ(run_world(2, body, {{"WHORL_TIMEOUT_MS", "1000"}}), "");
}

TEST(DeviceMappingsGroups, MapTheMemoryOfEachOperation) {
  const auto body = [](RankContext& context, whorlComm_t comm) {
    const DeviceQueue stream;
    std::vector<std::unique_ptr<MappedMemory>> buffers;
    for (int i = 0; i < 6; ++i) {
      buffers.push_back(std::make_unique<MappedMemory>(std::vector<std::size_t>{1, 1}));
      fill(*buffers.back(), 0, 30'000, i, stream.get());
    }
    const DeviceCopy plain(std::vector<std::int32_t>(30'000, 1), stream.get());
    ASSERT_EQ(whorlGroupStart(), whorlSuccess);
    for (int twice = 0; twice < 2; ++twice) {
      for (const auto& buffer : buffers) sum_in(buffer->data(), 30'000, comm, stream.get());
      sum_in(plain.data(), 30'000, comm, stream.get());
    }
    ASSERT_EQ(failure(whorlGroupEnd(), comm), "");
    const int ranks = context.nranks;
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(values_of(*buffers[static_cast<std::size_t>(i)], 0, 30'000, stream.get()),
                std::vector<std::int32_t>(30'000, i * ranks * ranks));
    }
    EXPECT_EQ(plain.read<std::int32_t>(stream.get())[7], ranks * ranks);
    EXPECT_FALSE(host_was_used(comm));
  };
  EXPECT_EQ(run_world(3, body), "");
}

TEST(DeviceMappingsGroups, RanksOfOneProcessUseTheirAddresses) {
  const auto body = [](RankContext&, auto& comms, const auto& streams) {
    const long before = virtual_memory();
    {
      std::vector<std::unique_ptr<MappedMemory>> buffers;
      for (const DeviceQueue& stream : streams) {
        buffers.push_back(std::make_unique<MappedMemory>(std::vector<std::size_t>{2, 2, 1}));
        fill(*buffers.back(), 0, 50'000, 1, stream.get());
      }
      for (int round = 0; round < 5; ++round) {
        if (round == 3) {
          for (const DeviceQueue& stream : streams) stream.synchronize();
          for (const auto& buffer : buffers) {
            buffer->map_anew();
            fill(*buffer, 0, 50'000, 64, streams[0].get());
          }
        }
        whorlGroupStart();
        for (std::size_t i = 0; i < 2; ++i) {
          sum_in(buffers[i]->data(), 50'000, comms[i], streams[i].get());
        }
        ASSERT_EQ(failure(whorlGroupEnd(), comms[0]), "");
      }
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(values_of(*buffers[i], 0, 50'000, streams[i].get()),
                  std::vector<std::int32_t>(50'000, 1024));
        EXPECT_FALSE(host_was_used(comms[i]));
      }
    }
    for (whorlComm_t& comm : comms) {
      EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
      comm = nullptr;
    }
    EXPECT_EQ(virtual_memory(), before);
  };
  EXPECT_EQ(run_pairs(body), "");
}

} // namespace
} // namespace whorl::test
