// Tests of the words that streams wait for: when their numbers wrap, and when the communicator
// fails.
#include "device/ipc/stream_sync.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "base/shm_segment.h"
#include "gpu/driver.h"
#include "tests/support/device.h"
#include "tests/support/pretended_device.h"
#include "tests/support/thread_world.h"

namespace whorl {
namespace {

constexpr std::uint32_t kStart = 0xffffffe0; // 32 operations before the numbers wrap
constexpr std::uint64_t kTimeoutNs = 20'000'000'000;

/// Two ranks in this process, each with its own mapping of the board.
class StreamSyncTest : public ::testing::Test {
 protected:
  struct Rank {
    ShmSegment memory;
    test::DeviceQueue stream;
    std::unique_ptr<StreamSync> barriers;
  };

  void SetUp() override {
    for (int rank = 0; rank < 2; ++rank) {
      Rank& one = ranks_[static_cast<std::size_t>(rank)];
      auto memory = rank == 0 ? ShmSegment::create("board", board_bytes_for(2, true))
                              : ShmSegment::open(Fd(sys().duplicate(ranks_[0].memory.fd())),
                                                 board_bytes_for(2, true));
      ASSERT_TRUE(memory.ok()) << memory.status().message();
      one.memory = *std::move(memory);
      const SharedState board({one.memory.data(), one.memory.size()}, 2);
      for (int r = 0; rank == 0 && r < 2; ++r) {
        SharedState::StreamBarrier& barrier = board.barrier(r);
        for (auto* const word : {&barrier.ready, &barrier.done, &barrier.passed, &barrier.queued}) {
          word->store(kStart);
        }
      }
      one.barriers = std::make_unique<StreamSync>(
          board, rank, std::vector<std::string>{"rank 0", "rank 1"}, watch_);
      ASSERT_TRUE(one.barriers->prepare().ok());
    }
  }

  using Work = StreamSync::Work;
  void queue(std::size_t rank, int operations, Work work = Work::kNone) {
    Rank& one = ranks_[rank];
    for (int i = 0; i < operations; ++i) {
      const StreamSync::Operation operation{.stream = one.stream.get(),
                                            .stream_id = rank + 1,
                                            .work = work,
                                            .timeout_ns = kTimeoutNs,
                                            .call = {}};
      ASSERT_EQ(one.barriers->pass(operation, [] { return Status(); }).message(), "");
    }
  }
  std::uint64_t passed(std::size_t rank) const { return ranks_[rank].barriers->passed() - kStart; }

  test::DeviceContext context_;
  CommError comm_error_;
  DeviceWatch watch_{.comm_error = &comm_error_,
                     .look_at_peers = [] {},
                     .fail = [this](Status why) { comm_error_.set(std::move(why)); }};
  std::array<Rank, 2> ranks_;
};

TEST_F(StreamSyncTest, NobodyIsAheadOfOthersWhereNumbersBeginAnew) {
  queue(0, 100); // runs ahead
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(passed(0), 0U);
  int sum = 0;
  for (const int operations : {1, 30, 1, 1, 40, 27}) {
    queue(1, operations);
    sum += operations;
    ranks_[1].stream.synchronize();
    EXPECT_EQ(passed(1), static_cast<std::uint64_t>(sum));
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (passed(0) < static_cast<std::uint64_t>(sum) &&
           std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(passed(0), static_cast<std::uint64_t>(sum));
  }
  ranks_[0].stream.synchronize();
}

TEST_F(StreamSyncTest, OtherRanksWaitForTheLeader) {
  queue(1, 50, Work::kLeader);
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(passed(1), 0U);
  queue(0, 50, Work::kLeader);
  ranks_[1].stream.synchronize();
  ranks_[0].stream.synchronize();
  EXPECT_EQ(passed(0), 50U);
  EXPECT_EQ(passed(1), 50U);
}

// Checks that all words advance: after the numbers wrap, a word left behind would count as ahead.
TEST_F(StreamSyncTest, AllWordsOfARankWithoutASharePass) {
  for (const Work work : {Work::kLeader, Work::kEach, Work::kNone}) {
    queue(0, 20, work);
    queue(1, 20, work);
  }
  for (Rank& rank : ranks_) rank.stream.synchronize();
  const SharedState board({ranks_[0].memory.data(), ranks_[0].memory.size()}, 2);
  for (int r = 0; r < 2; ++r) {
    const SharedState::StreamBarrier& barrier = board.barrier(r);
    for (const auto* const word :
         {&barrier.ready, &barrier.done, &barrier.passed, &barrier.queued}) {
      EXPECT_EQ(word->load() - kStart, 60U);
    }
  }
}

TEST_F(StreamSyncTest, AFailureLetsAllStreamsGoOn) {
  queue(0, 70);
  queue(1, 35);
  comm_error_.set(Status::error(Code::kRemoteError, "enough"));
  ranks_[0].stream.synchronize();
  ranks_[1].stream.synchronize();
  EXPECT_EQ(passed(0), 70U);
  const SharedState board({ranks_[0].memory.data(), ranks_[0].memory.size()}, 2);
  EXPECT_TRUE(board.stop_words().is_set());
}

// Checks that a rank that times out just after another one, which has opened the barriers, does not
// report what the opened words say.
TEST_F(StreamSyncTest, TheReasonIsThatOfTheRankThatFailedFirst) {
  using namespace std::chrono_literals;
  std::uint32_t* word = nullptr; // holds the stream between the barriers
  ASSERT_EQ(cuMemHostAlloc(reinterpret_cast<void**>(&word), sizeof *word, 0), CUDA_SUCCESS);
  const std::atomic_ref held(*word);
  held = 0;
  const auto begin = std::chrono::steady_clock::now();
  watch_.look_at_peers = [&] { // the reason comes after the timeout
    if (std::chrono::steady_clock::now() - begin < 300ms) return;
    comm_error_.set(Status::error(Code::kRemoteError, "the reason"));
  };
  const SharedState board({ranks_[0].memory.data(), ranks_[0].memory.size()}, 2);
  board.stop_words().set(); // what a rank does that fails
  for (int rank = 0; rank < 2; ++rank) {
    board.barrier(rank).ready.store(kStart + (1U << 30));
    board.barrier(rank).done.store(kStart + (1U << 30));
  }
  const CUstream stream = ranks_[0].stream.get();
  const auto hold = [&] {
    return gpu::check(cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(word), 1,
                                          CU_STREAM_WAIT_VALUE_GEQ),
                      "cuStreamWaitValue32");
  };
  ASSERT_EQ(ranks_[0]
                .barriers
                ->pass({.stream = stream,
                        .stream_id = 1,
                        .work = Work::kLeader,
                        .timeout_ns = 200'000'000,
                        .call = {}},
                       hold)
                .message(),
            "");
  while (!comm_error_.is_set()) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(comm_error_.status().message(), "the reason");
  held = 1;
  ranks_[0].stream.synchronize();
  ranks_[0].barriers.reset();
  EXPECT_EQ(cuMemFreeHost(word), CUDA_SUCCESS);
}

// Checks that the time for which kernels of other ranks may still run is counted once.
TEST_F(StreamSyncTest, AFailureWithManyOperationsQueuedEndsSoon) {
  const SharedState board({ranks_[0].memory.data(), ranks_[0].memory.size()}, 2);
  queue(0, 50);
  board.barrier(1).queued.store(kStart + 50); // of a rank that has died, whose words stay behind
  comm_error_.set(Status::error(Code::kRemoteError, "enough"));
  const auto begin = std::chrono::steady_clock::now();
  ranks_[0].barriers.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  ranks_[0].stream.synchronize();
}

// Checks that a rank that cannot queue its barrier does not leave the others waiting for it.
TEST_F(StreamSyncTest, ABarrierThatCannotBeQueuedEndsTheCommunicator) {
  if (!test::device_is_pretended()) GTEST_SKIP() << "a real driver";
  const test::ScopedEnv refuse{{"FAKE_CUDA_NO_CAPTURED_WORDS", "1"}};
  queue(0, 3);
  const CUstream captured = ranks_[1].stream.get();
  ASSERT_EQ(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  const Status status = ranks_[1].barriers->pass(
      {.stream = captured, .stream_id = 2, .timeout_ns = kTimeoutNs, .call = {}},
      [] { return Status(); });
  EXPECT_EQ(status.code(), Code::kCudaError);
  EXPECT_EQ(comm_error_.status().message(), status.message());
  ranks_[0].stream.synchronize();
  EXPECT_EQ(passed(0), 3U);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(captured, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

} // namespace
} // namespace whorl
