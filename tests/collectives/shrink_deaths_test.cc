// Tests of a death at any moment of whorlCommShrink(): a rank gets an error that names the dead
// one, a communicator without it, or one that says so at once and in its first operation.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>

#include "tests/support/process_world.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 4;
constexpr int kFirstDead = 3; ///< so that the others keep their numbers
/// Far below the timeout of 30 s, and far above what is promised for an idle machine.
constexpr std::chrono::seconds kSoon{5};

/// Counts the ranks that have come to a place, and waits until so many have. Not a barrier(), in
/// which the dead would be missing.
void meet(RankContext& context, int place, int ranks) {
  auto& come = reinterpret_cast<std::atomic<int>*>(context.shared())[place];
  ++come;
  const auto end = Clock::now() + 3 * kSoon;
  while (come.load() < ranks && Clock::now() < end) ::usleep(100);
  EXPECT_GE(come.load(), ranks) << "place " << place;
}

/// Checks that the new communicator reports the death of one of its members without any operation.
void expect_async_error(whorlComm_t comm, const std::string& victim) {
  const auto end = Clock::now() + kSoon;
  whorlResult_t state = whorlSuccess;
  while (state == whorlSuccess && Clock::now() < end) {
    ASSERT_EQ(whorlCommGetAsyncError(comm, &state), whorlSuccess);
    ::usleep(100);
  }
  EXPECT_EQ(state, whorlRemoteError);
  EXPECT_THAT(whorlGetLastError(comm), HasSubstr(victim));
}

/// Uses the communicator that a rank has got, which may have the victim as a member.
void use(whorlComm_t comm, const std::string& victim, bool asks_first) {
  int size = 0, sum = 1;
  ASSERT_EQ(whorlCommCount(comm, &size), whorlSuccess);
  const bool with_victim = size == kRanks - 1;
  if (with_victim && asks_first) expect_async_error(comm, victim);
  const std::string failed =
      failure(whorlAllReduce(&sum, &sum, 1, whorlInt32, whorlSum, comm, nullptr), comm);
  if (with_victim) {
    EXPECT_THAT(failed, HasSubstr(victim));
  } else {
    EXPECT_EQ(failed, "");
    EXPECT_EQ(sum, size);
  }
}

/// Lets `victim` die `delay_us` after the ranks that remain have begun to shrink.
void expect_clear_end(const char* transport, int victim, int delay_us, bool asks_first) {
  const auto outcomes = run_ranks(kRanks, Mode::kProcesses, [&](RankContext& context) {
    whorlComm_t comm = join(context, {{"WHORL_TRANSPORTS", transport}, {"WHORL_LOG", "off"}});
    ASSERT_NE(comm, nullptr);
    const pid_t self = ::getpid();
    const auto pids = context.allgather(std::as_bytes(std::span(&self, 1)));
    pid_t pid = 0;
    std::memcpy(&pid, pids[static_cast<std::size_t>(victim)].data(), sizeof pid);
    const std::string dead = fmt::format("pid {})", pid);
    if (context.rank == kFirstDead) context.die();
    while (whorlBarrier(comm, nullptr) == whorlSuccess) continue;
    std::thread killer;
    meet(context, 0, kRanks - 1);
    if (context.rank == victim) {
      killer = std::thread([&] {
        ::usleep(static_cast<useconds_t>(delay_us));
        context.die();
      });
    }
    whorlComm_t rest = nullptr;
    const auto start = Clock::now();
    const std::string failed =
        failure(whorlCommShrink(comm, nullptr, 0, &rest, nullptr, WHORL_SHRINK_ABORT), comm);
    if (context.rank == victim) ::pause();
    const std::chrono::duration<double> shrunk = Clock::now() - start;
    int size = 0;
    if (rest != nullptr) {
      EXPECT_EQ(whorlCommCount(rest, &size), whorlSuccess);
    }
    SCOPED_TRACE(fmt::format("after {:.3f} s: {} ranks, {}", shrunk.count(), size, failed));
    if (failed.empty()) {
      use(rest, dead, asks_first);
    } else {
      EXPECT_THAT(failed, HasSubstr(dead));
    }
    EXPECT_LT(Clock::now() - start, 2 * kSoon);
    meet(context, 1, kRanks - 2);
    if (rest != nullptr) {
      EXPECT_EQ(whorlCommAbort(rest), whorlSuccess);
    }
    EXPECT_EQ(whorlCommAbort(comm), whorlSuccess);
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == victim || rank == kFirstDead) continue;
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].failures, "")
        << transport << ", rank " << rank << ", death of rank " << victim << " after " << delay_us
        << " us";
  }
}

/// Lets the lowest rank, where the others meet, and another one die at random moments.
void die_at_random(int runs) {
  with_each_transport([runs](const char* transport) {
    std::minstd_rand random(2026);
    for (int run = 0; run < runs; ++run) {
      constexpr int kMaxDelayUs = 8000;
      expect_clear_end(transport, run % 2, static_cast<int>(random() % kMaxDelayUs), run % 4 < 2);
    }
  });
}

TEST(ShrinkDeaths, EndClearlyAtAnyMoment) { die_at_random(12); }
TEST(ShrinkDeathsFull, EndClearlyAtAnyMoment) { die_at_random(200); }

} // namespace
} // namespace whorl::test
