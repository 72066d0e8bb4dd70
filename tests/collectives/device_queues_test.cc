// Tests with one hardware queue for all streams of a device (CUDA_DEVICE_MAX_CONNECTIONS): a kernel
// or a stream that waits keeps all later work in the queue from starting. Built with a pretended
// device, see tests/support/fake_cuda.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/device.h"
#include "tests/support/pretended_device.h"
#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

constexpr std::size_t kCount = 3000;
constexpr int kRounds = 4;

/// Number of devices, and WHORL_DEVICE_ALGO.
struct Way {
  int devices;
  const char* algorithm;
};

class OneQueue : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  }
  void TearDown() override {
    const DeviceContext context; // freeing memory needs a context
    memory_.reset();
  }
  static constexpr int kRanks = 4;
  static int device_of(int rank) { return rank % GetParam().devices; }

  const ScopedEnv settings_{{"FAKE_CUDA_CONNECTIONS", "1"},
                            {"FAKE_CUDA_DEVICES", "2"},
                            {"WHORL_DEVICE_ALGO", GetParam().algorithm},
                            {"WHORL_SEGMENT_BYTES", "4096"},
                            {"WHORL_SLOT_BYTES", "1024"},
                            {"WHORL_TIMEOUT_MS", "20000"}};
  std::optional<KeepMemory> memory_{std::in_place}; ///< until all ranks are joined
};

whorlResult_t maximum(const DeviceCopy& values, whorlComm_t comm, const DeviceQueue& stream) {
  return whorlAllReduce(values.data(), values.data(), kCount, whorlInt32, whorlMax, comm,
                        stream.get());
}

TEST_P(OneQueue, AThreadThatActsForAllRanksInAGroup) {
  const DeviceContext context;
  ThreadWorld world(kRanks);
  struct Rank {
    explicit Rank(int rank) : context(device_of(rank)), values(of(rank), stream.get()) {}
    static std::vector<std::int32_t> of(int rank) {
      return std::vector<std::int32_t>(kCount, rank);
    }
    DeviceContext context;
    DeviceQueue stream;
    DeviceCopy values;
  };
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) ranks.push_back(std::make_unique<Rank>(rank));
  for (int round = 0; round < kRounds; ++round) {
    whorlGroupStart();
    for (int rank = 0; rank < kRanks; ++rank) {
      const Rank& own = *ranks[static_cast<std::size_t>(rank)];
      maximum(own.values, world.comm(rank), own.stream);
    }
    ASSERT_EQ(whorlGroupEnd(), whorlSuccess) << whorlGetLastError(nullptr);
  }
  for (auto rank = ranks.rbegin(); rank != ranks.rend(); ++rank) {
    EXPECT_EQ((*rank)->values.read<std::int32_t>((*rank)->stream.get()), Rank::of(kRanks - 1));
  }
  while (!ranks.empty()) ranks.pop_back(); // contexts are a stack
}

// Checks two communicators, except on the host path.
TEST_P(OneQueue, ThreadsThatCallTwoCommunicatorsInTheSameOrder) {
  if (std::string(GetParam().algorithm) == "host") {
    GTEST_SKIP() << "with one queue for all streams, the wait of one communicator's operation on "
                    "the host may precede the copies that another rank's operation waits for";
  }
  ThreadWorld first(kRanks), second(kRanks);
  first.each([&](int rank, whorlComm_t comm) -> std::string {
    const DeviceContext own(device_of(rank));
    const DeviceQueue one, other;
    const DeviceCopy a(std::vector<std::int32_t>(kCount, rank), one.get());
    const DeviceCopy b(std::vector<std::int32_t>(kCount, -rank), other.get());
    for (int round = 0; round < kRounds; ++round) {
      if (const auto result = maximum(a, comm, one); result != whorlSuccess) {
        return failure(result, comm);
      }
      if (const auto result = maximum(b, second.comm(rank), other); result != whorlSuccess) {
        return failure(result, second.comm(rank));
      }
    }
    const std::vector<std::int32_t> most(kCount, kRanks - 1), none(kCount, 0);
    if (a.read<std::int32_t>(one.get()) != most) return "a";
    if (b.read<std::int32_t>(other.get()) != none) return "b";
    return {};
  });
}

// Checks that host operations which block each other fail: rank 0's wait precedes rank 1's input in
// the queue.
TEST(OneQueueErrors, RanksThatBlockEachOtherAreToldAndTheStreamsGoOn) {
  if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  const ScopedEnv settings{
      {"FAKE_CUDA_CONNECTIONS", "1"}, {"WHORL_DEVICE_ALGO", "host"}, {"WHORL_TIMEOUT_MS", "200"}};
  const DeviceContext context;
  ThreadWorld world(2);
  const DeviceQueue streams[2];
  const DeviceCopy values[2] = {{std::vector<std::int32_t>(kCount, 0), streams[0].get()},
                                {std::vector<std::int32_t>(kCount, 1), streams[1].get()}};
  for (int rank = 0; rank < 2; ++rank) { // not in a group, see docs/gpu.md
    EXPECT_EQ(maximum(values[rank], world.comm(rank), streams[rank]), whorlSuccess);
  }
  for (const DeviceQueue& stream : streams) stream.synchronize();
  whorlResult_t state = whorlSuccess;
  EXPECT_EQ(whorlCommGetAsyncError(world.comm(0), &state), whorlSuccess);
  EXPECT_EQ(state, whorlRemoteError);
  EXPECT_THAT(whorlGetLastError(world.comm(0)), ::testing::HasSubstr("rank 1"));
}

INSTANTIATE_TEST_SUITE_P(Ways, OneQueue,
                         ::testing::Values(Way{1, "fused"}, Way{1, "schedule"}, Way{2, "schedule"},
                                           Way{1, "host"}, Way{2, "host"}),
                         [](const auto& test) {
                           return std::string(test.param.algorithm) + "_on_" +
                                  std::to_string(test.param.devices);
                         });

} // namespace
} // namespace whorl::test
