// Tests of operations on device memory that the host carries out in segments, on the driver of
// device_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "memory/heap.h"
#include "tests/support/device_case.h"
#include "tests/support/pretended_device.h"
#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;

/// Settings with segments of 16 KiB and windows of a few KiB.
class Segments : public ::testing::Test {
 protected:
  const ScopedEnv env_{{"WHORL_SEGMENT_BYTES", "16384"}, {"WHORL_SLOT_BYTES", "1024"}};
  const DeviceContext context_;
};
class SegmentsOfRanks : public Segments, public ::testing::WithParamInterface<int> {};

/// Runs each collective in place and out of place: one window, several segments, and an uneven
/// number.
std::string run_all(int rank, whorlComm_t comm, int nranks, CUstream stream, int on_host) {
  int turn = 0;
  for (CollectiveCase c : every_case({4'096, 16'384, 70'001})) {
    c.type = c.count == 16'384 ? whorlFloat16 : whorlInt32;
    c.root = turn % nranks;
    const bool on_device = on_host < 0 || (rank + turn++) % nranks != on_host;
    if (auto text = run_case(c, rank, nranks, comm, stream, on_device); !text.empty()) return text;
  }
  return {};
}

TEST_P(SegmentsOfRanks, OneRankMayHaveItsBuffersOnTheHost) {
  run_on_device(GetParam(),
                [&](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
                  return run_all(rank, comm, GetParam(), stream.get(), 0);
                });
}

TEST_P(SegmentsOfRanks, EveryCollectiveGivesTheSameAsOnTheHost) {
  const ScopedEnv two{{"FAKE_CUDA_DEVICES", "2"}, {"WHORL_DEVICE_ALGO", "host"}};
  int devices = 0;
  ASSERT_EQ(cuDeviceGetCount(&devices), CUDA_SUCCESS);
  if (devices < 2 && GetParam() > 1) GTEST_SKIP() << "there is one device";
  run_on_device(
      GetParam(),
      [&](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
        return run_all(rank, comm, GetParam(), stream.get(), -1);
      },
      devices);
}
INSTANTIATE_TEST_SUITE_P(Ranks, SegmentsOfRanks, ::testing::Values(1, 2, 3, 5));

TEST_F(Segments, AWindowMayBeLargerThanASegment) {
  const ScopedEnv small{{"WHORL_SEGMENT_BYTES", "256"}, {"WHORL_SLOT_BYTES", "4096"}};
  constexpr int kRanks = 3;
  run_on_device(kRanks, [&](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    return run_all(rank, comm, kRanks, stream.get(), 0);
  });
}

TEST_F(Segments, OperationsTakeTheirPlaceInTheStream) {
  constexpr std::size_t kCount = 50'001;
  constexpr int kRounds = 10;
  run_on_device(2, [&](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    std::vector<std::int32_t> ones(kCount, 1);
    const DeviceCopy values(ones, stream.get());
    const DeviceCopy few(std::vector<std::int32_t>{1}, stream.get());
    std::int32_t* const data = rank == 0 ? values.data<std::int32_t>() : ones.data();
    // Each operation doubles the result of the one before it alone; small ones come in between.
    for (int round = 0; round < kRounds; ++round) {
      whorlResult_t result =
          whorlAllReduce(data, data, kCount, whorlInt32, whorlSum, comm, stream.get());
      if (result != whorlSuccess) return failure(result, comm);
      if (rank == 0) {
        result = whorlSend(few.data(), 1, whorlInt32, 1, comm, stream.get());
      } else {
        result = whorlRecv(few.data(), 1, whorlInt32, 0, comm, stream.get());
      }
      if (result != whorlSuccess) return failure(result, comm);
    }
    if (rank == 0) ones = values.read<std::int32_t>(stream.get());
    stream.synchronize();
    for (const std::int32_t value : ones) {
      if (value != 1 << kRounds) return "got " + std::to_string(value);
    }
    return {};
  });
}

TEST_F(Segments, SendsAndReceivesOfAGroupPassEachOther) {
  constexpr int kRanks = 3;
  constexpr std::size_t kCount = 40'001;
  run_on_device(kRanks, [&](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    std::vector<std::int32_t> mine(kCount);
    std::iota(mine.begin(), mine.end(), rank * 100);
    const DeviceCopy out(mine, stream.get());
    std::vector<std::unique_ptr<DeviceCopy>> in;
    whorlGroupStart();
    for (int peer = 0; peer < kRanks; ++peer) {
      in.push_back(
          std::make_unique<DeviceCopy>(std::vector<std::int32_t>(kCount, -1), stream.get()));
      whorlSend(out.data(), kCount, whorlInt32, peer, comm, stream.get());
      whorlRecv(in.back()->data(), kCount, whorlInt32, peer, comm, stream.get());
    }
    if (const auto text = failure(whorlGroupEnd(), comm); !text.empty()) return text;
    for (int peer = 0; peer < kRanks; ++peer) {
      const auto got = in[static_cast<std::size_t>(peer)]->read<std::int32_t>(stream.get());
      for (std::size_t i = 0; i < kCount; ++i) {
        if (got[i] != peer * 100 + static_cast<std::int32_t>(i)) {
          return "element " + std::to_string(i) + " from " + std::to_string(peer);
        }
      }
    }
    return {};
  });
}

TEST_F(Segments, AReceiveFromAnyRankMayBeInSegments) {
  constexpr std::size_t kCount = 40'001;
  run_on_device(2, [&](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    const DeviceCopy data(std::vector<std::int32_t>(kCount, rank), stream.get());
    int source = -1;
    const whorlResult_t result =
        rank == 0 ? whorlRecvAny(data.data(), kCount, whorlInt32, &source, comm, stream.get())
                  : whorlSend(data.data(), kCount, whorlInt32, 0, comm, stream.get());
    if (result != whorlSuccess) return failure(result, comm);
    const auto got = data.read<std::int32_t>(stream.get());
    if (rank == 0 && source != 1) return "from rank " + std::to_string(source);
    return got == std::vector<std::int32_t>(kCount, 1) ? "" : "wrong values";
  });
}

TEST_F(Segments, BlocksMayDifferInSize) {
  const ScopedEnv by_host{{"WHORL_DEVICE_ALGO", "host"}};
  constexpr int kRanks = 3;
  const std::array<std::size_t, kRanks> counts{5, 9'001, 30'000};
  const std::array<std::size_t, kRanks> at{0, 5, 9'010}; // leaves a gap that no rank writes
  run_on_device(kRanks, [&](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    const std::size_t mine = counts[static_cast<std::size_t>(rank)];
    const DeviceCopy in(std::vector<std::int32_t>(mine, rank), stream.get());
    const DeviceCopy out(std::vector<std::int32_t>(39'013, -1), stream.get());
    whorlResult_t result = whorlAllGatherv(in.data(), mine, out.data(), counts.data(), at.data(),
                                           whorlInt32, comm, stream.get());
    if (result != whorlSuccess) return failure(result, comm);
    std::vector<std::int32_t> expected(39'013, -1);
    for (std::size_t r = 0; r < kRanks; ++r) {
      std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(at[r]), counts[r],
                  static_cast<std::int32_t>(r));
    }
    if (out.read<std::int32_t>(stream.get()) != expected) return "wrong values of all-gather";

    std::vector<std::int32_t> all(39'006);
    std::iota(all.begin(), all.end(), 0);
    const DeviceCopy addends(all, stream.get());
    result = whorlReduceScatterv(addends.data(), out.data(), counts.data(), whorlInt32, whorlSum,
                                 comm, stream.get());
    if (result != whorlSuccess) return failure(result, comm);
    const auto sums = out.read<std::int32_t>(stream.get());
    const std::int32_t first = rank == 0 ? 0 : rank == 1 ? 5 : 9'006;
    for (std::size_t i = 0; i < mine; ++i) {
      if (sums[i] != kRanks * (first + static_cast<std::int32_t>(i))) {
        return "sum " + std::to_string(i) + " is " + std::to_string(sums[i]);
      }
    }
    for (std::size_t i = mine; i < sums.size(); ++i) {
      if (sums[i] != expected[i]) return "overwritten at " + std::to_string(i);
    }
    return {};
  });
}

TEST_F(Segments, InputsAreScaled) {
  constexpr std::size_t kCount = 20'001;
  run_on_device(2, [&](int rank, whorlComm_t comm, const DeviceQueue& stream) -> std::string {
    const DeviceCopy factor(std::vector<float>{rank == 0 ? 2.0f : 10.0f}, stream.get());
    const std::vector<float> ones(2 * kCount, 1.0f);
    const DeviceCopy values(ones, stream.get());
    const DeviceCopy sums(std::vector<float>(kCount), stream.get());
    whorlRedOp_t op = whorlSum;
    whorlResult_t result =
        whorlRedOpCreatePreMulSum(&op, factor.data(), whorlFloat32, whorlScalarDevice, comm);
    if (result != whorlSuccess) return failure(result, comm);
    result = whorlReduceScatter(values.data(), sums.data(), kCount, whorlFloat32, op, comm,
                                stream.get());
    if (result != whorlSuccess) return failure(result, comm);
    const auto got = sums.read<float>(stream.get());
    whorlRedOpDestroy(op, comm);
    if (values.read<float>(stream.get()) != ones) return "the input was changed";
    return got == std::vector<float>(kCount, 12.0f) ? "" : "got " + std::to_string(got[0]);
  });
}

/// Returns the window numbers in a trace.
std::set<int> windows_in(const std::filesystem::path& trace) {
  std::ifstream file(trace);
  EXPECT_TRUE(file.is_open());
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::set<int> windows;
  constexpr std::string_view kKey = "\"window\":";
  for (auto at = text.find(kKey); at != std::string::npos; at = text.find(kKey, at + 1)) {
    windows.insert(std::atoi(text.c_str() + at + kKey.size()));
  }
  return windows;
}

TEST_F(Segments, ATraceNumbersTheWindowsOfTheWholeOperation) {
  std::string folder = (std::filesystem::temp_directory_path() / "whorl-trace-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  {
    const ScopedEnv trace{{"WHORL_TRACE", folder + "/%r"}};
    run_on_device(2, [&](int rank, whorlComm_t comm, const DeviceQueue& stream) {
      return run_case({.count = 50'000, .type = whorlInt32}, rank, 2, comm, stream.get(),
                      rank == 0); // rank 1 goes through all windows at once
    });
  }
  const std::filesystem::path traces = folder;
  EXPECT_GT(windows_in(traces / "1").size(), 10U);
  EXPECT_EQ(windows_in(traces / "0"), windows_in(traces / "1"));
  std::filesystem::remove_all(traces);
}

TEST_F(Segments, AnAbsentRankEndsTheOperationAndTheStreamGoesOn) {
  const ScopedEnv env{{"WHORL_TIMEOUT_MS", "300"}};
  ThreadWorld world(2);
  const DeviceQueue stream;
  const DeviceCopy values(std::vector<float>(50'000, 1.0f), stream.get());
  ASSERT_EQ(whorlRecv(values.data(), 50'000, whorlFloat32, 1, world.comm(0), stream.get()),
            whorlSuccess);
  stream.synchronize();
  whorlResult_t state = whorlSuccess;
  ASSERT_EQ(whorlCommGetAsyncError(world.comm(0), &state), whorlSuccess);
  EXPECT_EQ(state, whorlRemoteError);
  EXPECT_THAT(whorlGetLastError(world.comm(0)), HasSubstr("waiting for rank 1"));
}

/// Sends device memory from rank 0 to rank 1, each in a call of its own.
void transfer(const ThreadWorld& world, const DeviceCopy& from, const DeviceCopy& to,
              std::size_t count, const DeviceQueue& first, const DeviceQueue& second) {
  EXPECT_EQ(whorlSend(from.data(), count, whorlFloat32, 1, world.comm(0), first.get()),
            whorlSuccess);
  EXPECT_EQ(whorlRecv(to.data(), count, whorlFloat32, 0, world.comm(1), second.get()),
            whorlSuccess);
}

TEST_F(Segments, ACallThatCannotBeQueuedLeavesNoStreamWaiting) {
  if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  ThreadWorld world(2);
  const DeviceQueue first, second;
  const DeviceCopy from(std::vector<float>(50'000, 3.0f), first.get());
  const DeviceCopy to(std::vector<float>(50'000, 4.0f), second.get());
  for (const long allowed : {0L, 2L, 5L, 9L}) { // some copies of the first segments, or later ones
    transfer(world, from, to, 50'000, first, second);
    // The failing call follows one that may be in progress.
    allow_copies(allowed);
    EXPECT_EQ(whorlSend(from.data(), 50'000, whorlFloat32, 1, world.comm(0), first.get()),
              whorlUnhandledCudaError);
    EXPECT_THAT(whorlGetLastError(world.comm(0)), HasSubstr("cuMemcpyAsync"));
    allow_copies(-1);
    first.synchronize();
    transfer(world, from, to, 50'000, first, second);
    EXPECT_EQ(to.read<float>(second.get()), std::vector<float>(50'000, 3.0f));
    first.synchronize();
  }
}

TEST_F(Segments, ADriverWithoutWordsRefusesTheCallAndNoStreamWaits) {
  if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  ThreadWorld world(2);
  const DeviceQueue first, second;
  for (const std::size_t count : {50U, 50'000U}) { // copied at once, and in segments
    const DeviceCopy from(std::vector<float>(count, 3.0f), first.get());
    const DeviceCopy to(std::vector<float>(count, 4.0f), second.get());
    {
      const ScopedEnv none{{"FAKE_CUDA_NO_WORDS", "1"}};
      EXPECT_EQ(whorlSend(from.data(), count, whorlFloat32, 1, world.comm(0), first.get()),
                whorlUnhandledCudaError);
      EXPECT_THAT(whorlGetLastError(world.comm(0)), HasSubstr("cuStreamWriteValue32"));
    }
    first.synchronize();
    transfer(world, from, to, count, first, second);
    EXPECT_EQ(to.read<float>(second.get()), std::vector<float>(count, 3.0f));
    first.synchronize();
  }
}

TEST_F(Segments, ACallOfAGroupThatCannotBeQueuedLeavesNoStreamWaiting) {
  if (!device_is_pretended()) GTEST_SKIP() << "a real driver";
  ThreadWorld world(2);
  const DeviceQueue first, second;
  const DeviceCopy a(std::vector<float>(50, 1.0f), first.get());
  const DeviceCopy b(std::vector<float>(50, 2.0f), second.get());
  const DeviceCopy large(std::vector<float>(50'000, 3.0f), first.get());
  const DeviceCopy copy(std::vector<float>(50'000, 4.0f), second.get());
  for (int round = 0; round < 3; ++round) {
    transfer(world, large, copy, 50'000, first, second);
    // The failing call follows one that is still in progress.
    ASSERT_EQ(whorlSend(a.data(), 50, whorlFloat32, 1, world.comm(0), first.get()), whorlSuccess);
    allow_copies(1); // allows the copy in, but not back
    whorlGroupStart();
    whorlSend(a.data(), 50, whorlFloat32, 1, world.comm(0), first.get());
    whorlRecv(b.data(), 50, whorlFloat32, 0, world.comm(1), second.get());
    EXPECT_EQ(whorlGroupEnd(), whorlUnhandledCudaError);
    allow_copies(-1);
    second.synchronize();
    ASSERT_EQ(whorlRecv(b.data(), 50, whorlFloat32, 0, world.comm(1), second.get()), whorlSuccess);
    EXPECT_EQ(b.read<float>(second.get())[0], 1.0f);
    first.synchronize();
  }
  EXPECT_EQ(copy.read<float>(second.get()), std::vector<float>(50'000, 3.0f));
}

// With segments of this size the copies of the operation would fill the queue of a stream several
// times: the driver would hold the call up until the operation, which begins after the call, is
// carried out.
TEST_F(Segments, ALargeOperationFitsIntoTheQueueOfAStreamAndTakesLittleMemory) {
  const ScopedEnv tiny{{"WHORL_SEGMENT_BYTES", "4096"}, {"WHORL_SLOT_BYTES", "1024"}};
  constexpr std::size_t kLarge = 6 << 20;
  ThreadWorld world(2);
  const DeviceQueue first, second;
  const DeviceCopy from(std::vector<float>(kLarge, 3.0f), first.get());
  const DeviceCopy to(std::vector<float>(kLarge, 4.0f), second.get());
  const std::size_t before = heap_bytes();
  transfer(world, from, to, kLarge, first, second);
  EXPECT_EQ(to.read<float>(second.get()), std::vector<float>(kLarge, 3.0f));
  first.synchronize();
  EXPECT_LT(heap_bytes() - before, kLarge * sizeof(float) / 4);
}

// Calls that one thread makes ahead of those of the other rank: none may wait for room in the
// stream.
TEST_F(Segments, ManyLargeOperationsMayBeQueuedAhead) {
  const ScopedEnv tiny{{"WHORL_SEGMENT_BYTES", "4096"}, {"WHORL_SLOT_BYTES", "1024"}};
  constexpr std::size_t kCount = 1 << 20;
  constexpr int kOperations = 8;
  ThreadWorld world(2);
  const DeviceQueue first, second;
  const DeviceCopy from(std::vector<float>(kCount, 3.0f), first.get());
  const DeviceCopy to(std::vector<float>(kCount, 4.0f), second.get());
  for (int i = 0; i < kOperations; ++i) {
    ASSERT_EQ(whorlSend(from.data(), kCount, whorlFloat32, 1, world.comm(0), first.get()),
              whorlSuccess);
  }
  for (int i = 0; i < kOperations; ++i) {
    ASSERT_EQ(whorlRecv(to.data(), kCount, whorlFloat32, 0, world.comm(1), second.get()),
              whorlSuccess);
  }
  EXPECT_EQ(to.read<float>(second.get()), std::vector<float>(kCount, 3.0f));
  first.synchronize();
}

} // namespace
} // namespace whorl::test
