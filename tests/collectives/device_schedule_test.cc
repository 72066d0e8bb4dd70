// Tests of collectives that kernels on one or several devices carry out by interpreting schedules.
// Built with a pretended device, see tests/support/fake_cuda, where blocks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/device_blocks.h"
#include "tests/support/device_case.h"
#include "tests/support/device_processes.h"
#include "tests/support/pretended_device.h"
#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;

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
  const long before = cooperative_launches();
  run([&](int rank, whorlComm_t comm, const DeviceQueue& stream) {
    return run_every_collective(rank, nranks(), comm, stream.get(), counts);
  });
  if (before >= 0) {
    EXPECT_EQ(cooperative_launches() - before,
              cases_of_every_collective(counts) * std::min(GetParam().devices, nranks()));
  }
}

TEST_P(Schedules, BlocksMayDifferInSize) {
  if (nranks() > 6 * GetParam().devices) GTEST_SKIP() << "see SchedulesOfBlocks";
  const long before = cooperative_launches();
  run([&](int rank, whorlComm_t comm, const DeviceQueue& stream) {
    const DeviceCaller caller{rank, nranks(), comm, stream.get()};
    std::string text = both_forms(caller);
    return text.empty() ? every_form(caller, GetParam().devices > 1) : text;
  });
  if (before >= 0) {
    EXPECT_GT(cooperative_launches() - before, 20 * std::min(GetParam().devices, nranks()));
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

} // namespace
} // namespace whorl::test
