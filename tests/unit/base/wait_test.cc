#include "base/wait.h"

#include <gtest/gtest.h>

namespace whorl {
namespace {

constexpr std::uint64_t kMicrosecond = 1'000;
constexpr std::uint64_t kMillisecond = 1'000'000;

/// Clock that advances when the thread yields or sleeps.
class FakeClock final : public System {
 public:
  std::uint64_t now_ns() noexcept override { return now; }
  void yield() noexcept override {
    ++yields;
    now += yield_takes;
  }
  void sleep_ns(std::uint64_t duration_ns) noexcept override {
    ++naps;
    now += duration_ns;
  }

  std::uint64_t now = start();
  std::uint64_t yield_takes = kMicrosecond;
  int yields = 0;
  int naps = 0;

 private:
  // Returns a start long after the last test's, since the library's thread-local state outlives a
  // test.
  static std::uint64_t start() {
    static std::uint64_t started = 0;
    return started += 3'600'000 * kMillisecond;
  }
};

class Waits : public ::testing::Test {
 protected:
  /// Waits until `duration_ns` have passed.
  WaitResult wait(std::uint64_t duration_ns, WaitPolicy policy) {
    clock_.yields = clock_.naps = 0;
    const std::uint64_t begin = clock_.now;
    return wait_until(
        [&] { return clock_.now - begin >= duration_ns ? Progress::kDone : Progress::kIdle; },
        policy, comm_error_, waiter_);
  }

  FakeClock clock_;
  ScopedSystem scoped_{&clock_};
  CommError comm_error_;
  ClockWaiter waiter_;
  const WaitPolicy policy_{
      .timeout_ns = 1'000 * kMillisecond, .yield_ns = kMillisecond, .block_ns = kMillisecond};
};

TEST_F(Waits, YieldBeforeTheyBlock) {
  EXPECT_EQ(wait(kMillisecond / 2, policy_), WaitResult::kReady);
  EXPECT_EQ(clock_.yields, 500);
  EXPECT_EQ(clock_.naps, 0);
  EXPECT_EQ(wait(2 * kMillisecond, policy_), WaitResult::kReady);
  EXPECT_EQ(clock_.yields, 1000);
  EXPECT_GT(clock_.naps, 0);
}

TEST_F(Waits, NapForLongerAndLongerWhereYieldsGiveTheCoreToOneThatComputes) {
  clock_.yield_takes = 3 * kMillisecond;
  for (const std::uint64_t part : {1U, 2U, 4U, 8U, 8U}) {
    EXPECT_EQ(wait(kMillisecond / 2, policy_), WaitResult::kReady);
    EXPECT_EQ(clock_.yields, 1);
    const std::uint64_t crowded_since = clock_.now;
    while (clock_.now - crowded_since < 3 * part * kMillisecond) {
      EXPECT_EQ(wait(kMillisecond / 2, policy_), WaitResult::kReady);
      EXPECT_EQ(clock_.yields, 0) << "part " << part;
      EXPECT_GT(clock_.naps, 0);
      if (clock_.now - crowded_since > (3 * part - 1) * kMillisecond) {
        clock_.now = crowded_since + 3 * part * kMillisecond;
      }
    }
  }
}

TEST_F(Waits, NapOnlyAsLongAsASingleYieldTook) {
  clock_.yield_takes = 3 * kMillisecond;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(wait(kMillisecond / 2, policy_), WaitResult::kReady);
    EXPECT_EQ(clock_.yields, 1);
    clock_.now += 7 * kMillisecond; // more than the period and as long again
  }
}

TEST_F(Waits, YieldAgainWhenTheOneThatComputedMayBeGone) {
  clock_.yield_takes = 3 * kMillisecond;
  EXPECT_EQ(wait(kMillisecond / 2, policy_), WaitResult::kReady);
  clock_.yield_takes = kMicrosecond;
  clock_.now += 3 * kMillisecond;
  EXPECT_EQ(wait(kMillisecond / 2, policy_), WaitResult::kReady);
  EXPECT_EQ(clock_.yields, 500);
  EXPECT_EQ(clock_.naps, 0);
}

TEST_F(Waits, TakeShortTurnsOfOthersForThoseOfRanks) {
  clock_.yield_takes = 300 * kMicrosecond;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(wait(kMillisecond / 2, policy_), WaitResult::kReady);
    EXPECT_EQ(clock_.yields, 2);
    EXPECT_EQ(clock_.naps, 0);
  }
}

TEST_F(Waits, EndAtTheTimeoutWhetherTheyYieldOrBlock) {
  WaitPolicy policy = policy_;
  policy.timeout_ns = 5 * kMillisecond;
  for (const std::uint64_t takes : {kMicrosecond, 3 * kMillisecond}) {
    clock_.yield_takes = takes;
    const std::uint64_t begin = clock_.now;
    EXPECT_EQ(wait(1'000 * kMillisecond, policy), WaitResult::kTimedOut);
    EXPECT_GE(clock_.now - begin, policy.timeout_ns);
    EXPECT_LT(clock_.now - begin, policy.timeout_ns + takes + kMillisecond);
  }
}

} // namespace
} // namespace whorl
