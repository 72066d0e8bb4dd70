// Tests of collectives that kernels on one or several devices carry out by interpreting schedules.
// Built with a pretended device, see tests/support/fake_cuda, where blocks are threads.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/device_blocks.h"
#include "tests/support/device_case.h"
#include "tests/support/device_graph.h"
#include "tests/support/device_processes.h"
#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;

template <class F>
F* of_the_driver(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name));
}
/// Returns the number of cooperative launches so far.
long launches() {
  auto* const count = of_the_driver<long()>("fake_cuda_cooperative_launches");
  return count == nullptr ? -1 : count();
}
/// Keeps interpreters of a device from starting; −1: of none. Returns false on a real driver.
bool hold(int device) {
  auto* const function = of_the_driver<void(int)>("fake_cuda_hold_launches");
  if (function != nullptr) function(device);
  return function != nullptr;
}

/// Numbers of ranks and devices; rank r is on device r modulo the number of devices.
struct Places {
  int ranks, devices;
  int device_of(int rank) const { return rank % devices; }
};

class Schedules : public ::testing::TestWithParam<Places> {
 protected:
  void SetUp() override {
    const DeviceContext context; // initialises the driver before the communicator is made
    int devices = 0;
    ASSERT_EQ(cuDeviceGetCount(&devices), CUDA_SUCCESS);
    if (devices < GetParam().devices) GTEST_SKIP() << "there are " << devices << " devices";
  }
  void TearDown() override {
    const DeviceContext context; // freeing memory needs a context
    memory_.reset();
  }
  void run(const DeviceBody& body) { run_on_device(nranks(), body, GetParam().devices); }
  int nranks() const { return GetParam().ranks; }
  int device_of(int rank) const { return GetParam().device_of(rank); }

  const ScopedEnv settings_{{"FAKE_CUDA_DEVICES", "4"},
                            {"WHORL_DEVICE_ALGO", "schedule"},
                            {"WHORL_SLOT_BYTES", "1024"},
                            {"WHORL_SLOTS", "2"}};
  std::optional<KeepMemory> memory_{std::in_place}; ///< until all ranks are joined
};

TEST_P(Schedules, EveryCollectiveGivesTheSameAsOnTheHost) {
  const std::vector<std::size_t> counts{1, 1000, 5'003};
  const long before = launches();
  run([&](int rank, whorlComm_t comm, const DeviceQueue& stream) {
    return run_every_collective(rank, nranks(), comm, stream.get(), counts);
  });
  if (before >= 0) {
    EXPECT_EQ(launches() - before,
              cases_of_every_collective(counts) * std::min(GetParam().devices, nranks()));
  }
}

TEST_P(Schedules, BlocksMayDifferInSize) {
  if (nranks() > 6 * GetParam().devices) GTEST_SKIP() << "see SchedulesOfBlocks";
  const long before = launches();
  run([&](int rank, whorlComm_t comm, const DeviceQueue& stream) {
    const Caller caller{rank, nranks(), comm, stream.get()};
    std::string text = both_forms(caller);
    return text.empty() ? every_form(caller, GetParam().devices > 1) : text;
  });
  if (before >= 0) {
    EXPECT_GT(launches() - before, 20 * std::min(GetParam().devices, nranks()));
  }
}

TEST_P(Schedules, EveryReductionAndAlgorithm) {
  for (const char* const algorithm : {"oneshot", "twoshot", "ring", "doubling", "tree"}) {
    const ScopedEnv forced{{"WHORL_ALGO", algorithm}};
    run([&](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
      for (const auto& [type, op] :
           std::vector<std::pair<whorlDataType_t, whorlRedOp_t>>{{whorlFloat32, whorlSum},
                                                                 {whorlBfloat16, whorlAvg},
                                                                 {whorlUint8, whorlBxor},
                                                                 {whorlBool, whorlProd},
                                                                 {whorlFloat64, whorlMin}}) {
        const CollectiveCase c{.count = 777, .type = type, .op = op};
        if (auto text = run_case(c, rank, nranks(), comm, stream.get()); !text.empty()) return text;
      }
      return {};
    });
  }
}

TEST_P(Schedules, OperationsTakeTheirPlaceInTheStream) {
  constexpr std::size_t kCount = 2000;
  constexpr int kRounds = 10;
  run([&](int, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    const DeviceCopy values(std::vector<std::int64_t>(kCount, 1), stream.get());
    std::int64_t expected = 1;
    // Each operation multiplies the result of the one before it alone.
    for (int round = 0; round < kRounds; ++round) {
      expected *= nranks();
      const whorlResult_t result = whorlAllReduce(values.data(), values.data(), kCount, whorlInt64,
                                                  whorlSum, comm, stream.get());
      if (result != whorlSuccess) return failure(result, comm);
    }
    for (const std::int64_t value : values.read<std::int64_t>(stream.get())) {
      if (value != expected) return "got " + std::to_string(value);
    }
    return {};
  });
}

TEST_P(Schedules, OperationsOfACommunicatorInSeveralStreams) {
  constexpr int kStreams = 3;
  ThreadWorld world(nranks());
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    const DeviceContext own(device_of(rank));
    const DeviceQueue streams[kStreams];
    std::vector<std::unique_ptr<DeviceCopy>> values;
    for (int i = 0; i < kStreams; ++i) {
      values.push_back(std::make_unique<DeviceCopy>(std::vector<std::int32_t>(2500, rank + i),
                                                    streams[i].get()));
    }
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < kStreams; ++i) {
        auto* const data = values[static_cast<std::size_t>(i)]->data<std::int32_t>();
        const whorlResult_t result =
            whorlAllReduce(data, data, 2500, whorlInt32, whorlMax, comm, streams[i].get());
        if (result != whorlSuccess) return failure(result, comm);
      }
    }
    for (int i = 0; i < kStreams; ++i) {
      const auto got = values[static_cast<std::size_t>(i)]->read<std::int32_t>(streams[i].get());
      if (got != std::vector<std::int32_t>(2500, nranks() - 1 + i)) return "wrong values";
    }
    return {};
  });
}

TEST_P(Schedules, GroupsOfOperationsAndTwoCommunicators) {
  ThreadWorld first(nranks()), second(nranks());
  first.each([&](int rank, whorlComm_t comm) -> std::string {
    const DeviceContext own(device_of(rank));
    const DeviceQueue one, other;
    const DeviceCopy a(std::vector<float>(600, 1.0f), one.get());
    const DeviceCopy b(std::vector<float>(700, 2.0f), one.get());
    const DeviceCopy c(std::vector<float>(800, 3.0f), other.get());
    for (int round = 0; round < 3; ++round) {
      whorlGroupStart();
      whorlAllReduce(a.data(), a.data(), 600, whorlFloat32, whorlMax, comm, one.get());
      whorlAllReduce(c.data(), c.data(), 800, whorlFloat32, whorlMin, second.comm(rank),
                     other.get());
      whorlBroadcast(b.data(), b.data(), 700, whorlFloat32, 0, comm, one.get());
      if (auto text = failure(whorlGroupEnd(), comm); !text.empty()) return text;
    }
    if (a.read<float>(one.get()) != std::vector<float>(600, 1.0f)) return "a";
    if (b.read<float>(one.get()) != std::vector<float>(700, 2.0f)) return "b";
    if (c.read<float>(other.get()) != std::vector<float>(800, 3.0f)) return "c";
    return {};
  });
}

// Checks ranks that use two communicators in different orders, and would block each other's devices
// without an agreement.
TEST_P(Schedules, TwoCommunicatorsInThreadsOfTheirOwn) {
  ThreadWorld first(nranks()), second(nranks());
  const auto drive = [&](ThreadWorld& world) {
    world.each([&](int rank, whorlComm_t comm) -> std::string {
      const DeviceContext own(device_of(rank));
      const DeviceQueue stream;
      const DeviceCopy values(std::vector<std::int32_t>(3000, rank), stream.get());
      for (int round = 0; round < 5; ++round) {
        const auto text = failure(whorlAllReduce(values.data(), values.data(), 3000, whorlInt32,
                                                 whorlMax, comm, stream.get()),
                                  comm);
        if (!text.empty()) return text;
      }
      const std::vector<std::int32_t> expected(3000, nranks() - 1);
      return values.read<std::int32_t>(stream.get()) == expected ? "" : "wrong values";
    });
  };
  std::thread thread([&] { drive(first); });
  drive(second);
  thread.join();
}

TEST_P(Schedules, SomeRanksMayHaveTheirBuffersOnTheHost) {
  run([&](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    for (int turn = 0; turn < 4; ++turn) {
      const CollectiveCase c{.count = 900, .type = whorlFloat64};
      const bool on_device = turn % 2 == 1 || rank != turn / 2;
      if (auto text = run_case(c, rank, nranks(), comm, stream.get(), on_device); !text.empty()) {
        return text;
      }
    }
    return {};
  });
}

TEST_P(Schedules, RanksThatDisagreeAreTold) {
  run([&](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    const DeviceCopy values(std::vector<float>(50, 1.0f), stream.get());
    const std::size_t count = rank == 0 ? 50 : 49;
    EXPECT_EQ(whorlAllReduce(values.data(), values.data(), count, whorlFloat32, whorlSum, comm,
                             stream.get()),
              whorlInvalidUsage);
    EXPECT_THAT(whorlGetLastError(comm), HasSubstr("differ in count (50 here, 49 there)"));
    return {};
  });
}

std::string place_name(const ::testing::TestParamInfo<Places>& test) {
  return std::to_string(test.param.ranks) + "_on_" + std::to_string(test.param.devices);
}
INSTANTIATE_TEST_SUITE_P(Ranks, Schedules,
                         ::testing::Values(Places{2, 1}, Places{4, 1}, Places{8, 1}, Places{2, 2},
                                           Places{3, 3}, Places{4, 2}, Places{4, 4}, Places{6, 4}),
                         place_name);

TEST(SchedulesOfBlocks, ThatAreTooManyForAKernelAreLeftToTheHost) {
  const ScopedEnv settings{{"WHORL_DEVICE_ALGO", "schedule"}};
  run_on_device(8, [&](int rank, whorlComm_t comm, const DeviceQueue& stream) {
    std::string text = all_to_all_v({rank, 8, comm, stream.get()}, 1, 500);
    return !text.empty() || host_was_used(comm) ? text : "the device has done it";
  });
}

TEST(SchedulesOfBlocks, WithWrongCountsNameBothRanks) {
  const ScopedEnv settings{{"WHORL_DEVICE_ALGO", "schedule"}};
  run_on_device(3, [&](int rank, whorlComm_t comm, const DeviceQueue& stream) {
    return wrong_counts({rank, 3, comm, stream.get()});
  });
}

/// Returns the number of devices, at least 1.
int devices() {
  const DeviceContext context; // initialises the driver
  int count = 0;
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
  return std::max(count, 1);
}

/// Two ranks on two devices.
class TwoDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    const DeviceContext context;
    if (!hold(-1)) GTEST_SKIP() << "a real device cannot be held";
  }
  void TearDown() override { hold(-1); }

  /// Issues an allreduce of all ranks from this thread, without completing it.
  whorlResult_t issue(whorlComm_t first, whorlComm_t second) {
    whorlGroupStart();
    for (std::size_t rank = 0; rank < 2; ++rank) {
      whorlAllReduce(ranks_[rank].values.data(), ranks_[rank].values.data(), 100, whorlFloat32,
                     whorlSum, rank == 0 ? first : second, ranks_[rank].stream.get());
    }
    return whorlGroupEnd();
  }
  whorlResult_t issue(const ThreadWorld& world) { return issue(world.comm(0), world.comm(1)); }
  void expect_the_host_to_serve() {
    const long before = launches();
    ThreadWorld world(2);
    for (int round = 0; round < 2; ++round) ASSERT_EQ(issue(world), whorlSuccess);
    for (Rank& rank : ranks_) {
      EXPECT_EQ(rank.values.read<float>(rank.stream.get()), std::vector<float>(100, 4.0f));
    }
    EXPECT_EQ(launches(), before);
  }

  const ScopedEnv settings_{{"FAKE_CUDA_DEVICES", "2"}};
  struct Rank {
    explicit Rank(int device) : context(device % devices()) {} // SetUp() skips where there is one
    DeviceContext context;
    DeviceQueue stream;
    DeviceCopy values{std::vector<float>(100, 1.0f), stream.get()};
  };
  Rank ranks_[2]{Rank(0), Rank(1)};
};

TEST_F(TwoDevices, NeedNoSetting) {
  const long before = launches();
  ThreadWorld world(2);
  ASSERT_EQ(issue(world), whorlSuccess);
  for (Rank& rank : ranks_) {
    EXPECT_EQ(rank.values.read<float>(rank.stream.get()), std::vector<float>(100, 2.0f));
  }
  EXPECT_EQ(launches() - before, 2);
}

TEST_F(TwoDevices, ThatDoNotReachEachOtherAreServedByTheHost) {
  const ScopedEnv apart{{"FAKE_CUDA_NO_PEERS", "1"}};
  expect_the_host_to_serve();
}

TEST_F(TwoDevices, AreServedByTheHostWhereThatIsAskedFor) {
  for (const char* const way : {"host", "fused"}) {
    const ScopedEnv asked{{"WHORL_DEVICE_ALGO", way}};
    const long before = launches();
    ThreadWorld world(2);
    ASSERT_EQ(issue(world), whorlSuccess);
    for (Rank& rank : ranks_) rank.stream.synchronize();
    EXPECT_EQ(launches(), before);
  }
}

TEST_F(TwoDevices, AnUnknownWayIsRefused) {
  const ScopedEnv asked{{"WHORL_DEVICE_ALGO", "magic"}};
  ThreadWorld world(2);
  EXPECT_EQ(issue(world), whorlInvalidUsage);
  EXPECT_THAT(whorlGetLastError(world.comm(0)), HasSubstr("WHORL_DEVICE_ALGO=\"magic\""));
}

TEST_F(TwoDevices, AKernelThatDoesNotBeginIsNamed) {
  const ScopedEnv short_time{{"WHORL_TIMEOUT_MS", "200"}};
  ThreadWorld world(2);
  hold(1);
  ASSERT_EQ(issue(world), whorlSuccess);
  ranks_[0].stream.synchronize(); // the kernel gives up
  for (int rank = 0; rank < 2; ++rank) {
    whorlResult_t state = whorlSuccess;
    ASSERT_EQ(whorlCommGetAsyncError(world.comm(rank), &state), whorlSuccess);
    EXPECT_EQ(state, whorlRemoteError);
    EXPECT_THAT(whorlGetLastError(world.comm(rank)), HasSubstr("rank 0"));
    EXPECT_THAT(whorlGetLastError(world.comm(rank)),
                HasSubstr("allreduce of 100 float32 (sum): waiting for rank 1"));
  }
  hold(-1);
  ranks_[1].stream.synchronize(); // the late kernel leaves at once
  EXPECT_EQ(issue(world), whorlRemoteError);
}

TEST_F(TwoDevices, AnAbortLetsKernelsLeave) {
  whorlComm_t comms[2] = {};
  ASSERT_EQ(whorlCommInitAll(comms, 2, nullptr), whorlSuccess);
  hold(1);
  ASSERT_EQ(issue(comms[0], comms[1]), whorlSuccess);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(whorlCommAbort(comms[0]), whorlSuccess);
  ranks_[0].stream.synchronize();
  const auto took = std::chrono::steady_clock::now() - begin; // the timeout is 30 s
  EXPECT_LT(took, std::chrono::seconds(15));
  whorlResult_t state = whorlSuccess;
  EXPECT_EQ(whorlCommGetAsyncError(comms[1], &state), whorlSuccess);
  EXPECT_EQ(state, whorlRemoteError);
  hold(-1);
  ranks_[1].stream.synchronize();
  EXPECT_EQ(whorlCommAbort(comms[1]), whorlSuccess);
}

TEST_F(TwoDevices, RunInACaptureOnceTheirMemoryIsThere) {
  ThreadWorld world(2);
  ASSERT_EQ(issue(world), whorlSuccess);
  for (Rank& rank : ranks_) rank.stream.synchronize();
  const CUstream first = ranks_[0].stream.get(), second = ranks_[1].stream.get();
  CUevent fork = nullptr, join = nullptr;
  for (int device = 0; device < 2; ++device) {
    const DeviceContext own(device);
    ASSERT_EQ(cuEventCreate(device == 0 ? &fork : &join, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  }
  const DeviceGraph graph(
      first,
      [&] {
        EXPECT_EQ(cuEventRecord(fork, first), CUDA_SUCCESS);
        EXPECT_EQ(cuStreamWaitEvent(second, fork, 0), CUDA_SUCCESS);
        EXPECT_EQ(issue(world), whorlSuccess);
        EXPECT_EQ(cuEventRecord(join, second), CUDA_SUCCESS);
        EXPECT_EQ(cuStreamWaitEvent(first, join, 0), CUDA_SUCCESS);
      },
      CU_STREAM_CAPTURE_MODE_RELAXED);
  graph.launch(first);
  ranks_[0].stream.synchronize();
  for (const CUevent event : {fork, join}) EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
  for (Rank& rank : ranks_) {
    EXPECT_EQ(rank.values.read<float>(rank.stream.get()), std::vector<float>(100, 4.0f));
  }
}

TEST_F(TwoDevices, CannotHaveCapturesOfTheirOwn) {
  ThreadWorld world(2);
  ASSERT_EQ(issue(world), whorlSuccess);
  for (Rank& rank : ranks_) rank.stream.synchronize();
  for (Rank& rank : ranks_) {
    ASSERT_EQ(cuStreamBeginCapture(rank.stream.get(), CU_STREAM_CAPTURE_MODE_RELAXED),
              CUDA_SUCCESS);
  }
  EXPECT_EQ(issue(world), whorlUnhandledCudaError);
  EXPECT_THAT(whorlGetLastError(world.comm(1)), HasSubstr("must belong to the same capture"));
  for (Rank& rank : ranks_) {
    CUgraph graph = nullptr;
    cuStreamEndCapture(rank.stream.get(), &graph); // valid or not
    if (graph != nullptr) {
      EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    }
  }
}

TEST_F(TwoDevices, ACaptureIsRefusedBeforeThat) {
  ThreadWorld world(2);
  CUgraph graph = nullptr;
  for (Rank& rank : ranks_) {
    ASSERT_EQ(cuStreamBeginCapture(rank.stream.get(), CU_STREAM_CAPTURE_MODE_RELAXED),
              CUDA_SUCCESS);
  }
  EXPECT_EQ(issue(world), whorlInvalidUsage);
  EXPECT_THAT(whorlGetLastError(nullptr), HasSubstr("issue it outside the capture"));
  for (Rank& rank : ranks_) {
    ASSERT_EQ(cuStreamEndCapture(rank.stream.get(), &graph), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  }
  EXPECT_EQ(issue(world), whorlSuccess); // the refused call changed nothing
  for (int rank = 0; rank < 2; ++rank) {
    whorlResult_t state = whorlSuccess;
    EXPECT_EQ(whorlCommGetAsyncError(world.comm(rank), &state), whorlSuccess);
    EXPECT_EQ(state, whorlSuccess) << whorlGetLastError(world.comm(rank));
  }
  for (Rank& rank : ranks_) {
    EXPECT_EQ(rank.values.read<float>(rank.stream.get()), std::vector<float>(100, 2.0f));
  }
}

TEST_F(TwoDevices, AreServedByTheHostWhereTheDriverHasLessRoomThanItSays) {
  const ScopedEnv part{{"FAKE_CUDA_ROOM", "0"}};
  expect_the_host_to_serve();
}

// Checks nine ranks on a device that has room for eight blocks.
TEST(Room, TooLittleOfItLeavesTheOperationToTheHost) {
  const ScopedEnv asked{{"WHORL_DEVICE_ALGO", "schedule"}};
  constexpr int kRanks = 9;
  const DeviceContext context;
  const long before = launches();
  if (before < 0) GTEST_SKIP() << "a real device is not that small";
  ThreadWorld world(kRanks);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    const DeviceContext own;
    const DeviceQueue stream;
    return run_case({.count = 1000}, rank, kRanks, comm, stream.get());
  });
  EXPECT_EQ(launches(), before);
}

TEST(GraphsOfSchedules, DoNothingAfterAnAbort) {
  const ScopedEnv asked{{"WHORL_DEVICE_ALGO", "schedule"}};
  const DeviceContext context;
  whorlComm_t comms[2] = {};
  ASSERT_EQ(failure(whorlCommInitAll(comms, 2, nullptr)), "");
  const DeviceQueue stream;
  const DeviceCopy source(std::vector<float>(10, 1.0f), stream.get());
  const DeviceCopy results[2] = {{std::vector<float>(10, 0.0f), stream.get()},
                                 {std::vector<float>(10, 0.0f), stream.get()}};
  const auto broadcast = [&] {
    whorlGroupStart();
    for (int rank = 0; rank < 2; ++rank) { // the root waits for no rank
      whorlBroadcast(source.data(), results[rank].data(), 10, whorlFloat32, 0, comms[rank],
                     stream.get());
    }
    EXPECT_EQ(failure(whorlGroupEnd()), "");
  };
  broadcast();
  {
    const DeviceGraph graph(stream.get(), broadcast);
    for (const DeviceCopy& one : results) {
      EXPECT_EQ(one.read<float>(stream.get()), std::vector<float>(10, 1.0f));
      EXPECT_EQ(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(one.data()), 0, 40, stream.get()),
                CUDA_SUCCESS);
    }
    EXPECT_EQ(whorlCommAbort(comms[0]), whorlSuccess);
    graph.launch(stream.get());
    for (const DeviceCopy& one : results) {
      EXPECT_EQ(one.read<float>(stream.get()), std::vector<float>(10, 0.0f));
    }
  }
  EXPECT_EQ(whorlCommAbort(comms[1]), whorlSuccess);
}

} // namespace
} // namespace whorl::test
