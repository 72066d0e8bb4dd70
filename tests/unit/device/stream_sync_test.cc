// The words that streams wait for, where their numbers begin anew, and when the communicator fails.
#include "device/ipc/stream_sync.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <thread>

#include "base/shm_segment.h"
#include "tests/support/device.h"

namespace whorl {
namespace {

constexpr std::uint32_t kStart = 0xffffffe0; // 32 operations before the numbers begin anew
constexpr std::uint64_t kTimeoutNs = 20'000'000'000;

/// Two ranks in this process, each with its own mapping of the board.
class Gates : public ::testing::Test {
 protected:
  struct Rank {
    ShmSegment memory;
    test::DeviceQueue stream;
    std::unique_ptr<DeviceGates> gates;
  };

  void SetUp() override {
    for (int rank = 0; rank < 2; ++rank) {
      Rank& one = ranks_[static_cast<std::size_t>(rank)];
      auto memory = rank == 0 ? ShmSegment::create("board", board_bytes_for(2))
                              : ShmSegment::open(Fd(sys().duplicate(ranks_[0].memory.fd())),
                                                 board_bytes_for(2));
      ASSERT_TRUE(memory.ok()) << memory.status().message();
      one.memory = *std::move(memory);
      const DeviceBoard board({one.memory.data(), one.memory.size()}, 2);
      for (int r = 0; rank == 0 && r < 2; ++r) {
        DeviceBoard::Gate& gate = board.gate(r);
        for (auto* const word : {&gate.ready, &gate.done, &gate.passed, &gate.queued}) {
          word->store(kStart);
        }
      }
      one.gates = std::make_unique<DeviceGates>(
          board, rank, std::vector<std::string>{"rank 0", "rank 1"}, watch_);
      ASSERT_TRUE(one.gates->prepare().ok());
    }
  }

  void queue(std::size_t rank, int operations, int workers = 2) {
    Rank& one = ranks_[rank];
    for (int i = 0; i < operations; ++i) {
      const DeviceGates::Operation operation{.stream = one.stream.get(),
                                             .stream_id = &one,
                                             .workers = workers,
                                             .timeout_ns = kTimeoutNs,
                                             .call = {}};
      ASSERT_EQ(one.gates->pass(operation, [] { return Status(); }).message(), "");
    }
  }
  std::uint64_t passed(std::size_t rank) const { return ranks_[rank].gates->passed() - kStart; }

  test::DeviceContext context_;
  Verdict verdict_;
  DeviceWatch watch_{.verdict = &verdict_,
                     .look_at_peers = [] {},
                     .fail = [this](Status why) { verdict_.raise(std::move(why)); }};
  std::array<Rank, 2> ranks_;
};

TEST_F(Gates, NobodyIsAheadOfAWorkerWhereNumbersBeginAnew) {
  queue(0, 100); // runs ahead
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(passed(0), 0U);
  int sum = 0;
  for (const int operations : {1, 30, 1, 1, 40, 27}) {
    queue(1, operations);
    sum += operations;
    ranks_[1].stream.synchronize();
    EXPECT_EQ(passed(1), static_cast<std::uint64_t>(sum));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(passed(0), static_cast<std::uint64_t>(sum));
  }
  ranks_[0].stream.synchronize();
}

TEST_F(Gates, ARankWithoutAShareWaitsForThoseThatHaveOne) {
  queue(1, 50, 1); // rank 0 has all the work
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(passed(1), 0U);
  queue(0, 50, 1);
  ranks_[1].stream.synchronize();
  ranks_[0].stream.synchronize();
  EXPECT_EQ(passed(0), 50U);
  EXPECT_EQ(passed(1), 50U);
}

// A word that stays behind would count as one ahead.
TEST_F(Gates, AllWordsOfARankWithoutASharePass) {
  for (const int workers : {1, 0}) {
    queue(0, 20, workers);
    queue(1, 20, workers);
  }
  for (Rank& rank : ranks_) rank.stream.synchronize();
  const DeviceBoard board({ranks_[0].memory.data(), ranks_[0].memory.size()}, 2);
  for (int r = 0; r < 2; ++r) {
    const DeviceBoard::Gate& gate = board.gate(r);
    for (const auto* const word : {&gate.ready, &gate.done, &gate.passed, &gate.queued}) {
      EXPECT_EQ(word->load() - kStart, 40U);
    }
  }
}

TEST_F(Gates, AFailureLetsAllStreamsGoOn) {
  queue(0, 70);
  queue(1, 35);
  verdict_.raise(Status::error(Code::kRemoteError, "enough"));
  ranks_[0].stream.synchronize();
  ranks_[1].stream.synchronize();
  EXPECT_EQ(passed(0), 70U);
  const DeviceBoard board({ranks_[0].memory.data(), ranks_[0].memory.size()}, 2);
  EXPECT_NE(board.cancelled().load(), 0U);
}

} // namespace
} // namespace whorl
