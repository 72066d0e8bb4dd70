// Tests of when beats are sent, and when a peer counts as unreachable.
#include "transports/control/heartbeat.h"

#include <gtest/gtest.h>

namespace whorl {
namespace {

using Action = Heartbeat::Action;
constexpr std::uint64_t kStart = 1'000'000'000;

TEST(Heartbeat, BeatsAtIntervalsWhilePeersAnswer) {
  Heartbeat heartbeat;
  EXPECT_EQ(heartbeat.next(kStart, true), Action::kSend);
  EXPECT_EQ(heartbeat.next(kStart + 1, true), Action::kNone);
  EXPECT_EQ(heartbeat.next(kStart + Heartbeat::kIntervalNs - 1, true), Action::kNone);
  EXPECT_EQ(heartbeat.next(kStart + Heartbeat::kIntervalNs, true), Action::kSend);
}

TEST(Heartbeat, OneBeatIsOnItsWayUntilTheEnd) {
  Heartbeat heartbeat;
  ASSERT_EQ(heartbeat.next(kStart, true), Action::kSend);
  for (std::uint64_t after = 0; after < Heartbeat::kSilenceNs; after += Heartbeat::kIntervalNs) {
    EXPECT_EQ(heartbeat.next(kStart + after, false), Action::kNone) << after;
  }
  EXPECT_EQ(heartbeat.next(kStart + Heartbeat::kSilenceNs, false), Action::kEnd);
}

TEST(Heartbeat, AnAcknowledgementJustBeforeTheEndCounts) {
  Heartbeat heartbeat;
  ASSERT_EQ(heartbeat.next(kStart, true), Action::kSend);
  std::uint64_t now = kStart;
  while (now + Heartbeat::kIntervalNs < kStart + Heartbeat::kSilenceNs) {
    ASSERT_EQ(heartbeat.next(now += Heartbeat::kIntervalNs, false), Action::kNone);
  }
  EXPECT_EQ(heartbeat.next(++now, true), Action::kSend) << "the next beat is due";
  EXPECT_EQ(heartbeat.next(now + Heartbeat::kLongestPauseNs, false), Action::kNone);
  EXPECT_EQ(heartbeat.next(now + 2 * Heartbeat::kLongestPauseNs, false), Action::kNone);
  EXPECT_EQ(heartbeat.next(now + Heartbeat::kSilenceNs, false), Action::kEnd);
}

TEST(Heartbeat, BeatsFollowALostOneWithoutPauses) {
  for (const bool lost : {false, true}) {
    Heartbeat heartbeat;
    std::uint64_t now = kStart;
    ASSERT_EQ(heartbeat.next(now, true), Action::kSend);
    now += Heartbeat::kLostNs - (lost ? 0 : 1);
    ASSERT_EQ(heartbeat.next(now, false), Action::kNone);
    ASSERT_EQ(heartbeat.next(++now, true), Action::kSend) << "due by its interval";
    for (int i = 1; i < (lost ? Heartbeat::kBeatsAfterLoss : 1); ++i) {
      ASSERT_EQ(heartbeat.next(++now, false), Action::kNone) << "one beat at a time";
      ASSERT_EQ(heartbeat.next(++now, true), Action::kSend) << i;
    }
    EXPECT_EQ(heartbeat.next(now + Heartbeat::kIntervalNs - 1, true), Action::kNone);
    EXPECT_EQ(heartbeat.next(now + Heartbeat::kIntervalNs, true), Action::kSend);
  }
}

TEST(Heartbeat, ABeatIsLateBeforeItIsTheEnd) {
  Heartbeat heartbeat;
  EXPECT_FALSE(heartbeat.is_late(kStart));
  ASSERT_EQ(heartbeat.next(kStart, true), Action::kSend);
  EXPECT_FALSE(heartbeat.is_late(kStart + Heartbeat::kLateNs - 1));
  EXPECT_TRUE(heartbeat.is_late(kStart + Heartbeat::kLateNs));
  heartbeat.next(kStart + Heartbeat::kLateNs, true);
  EXPECT_FALSE(heartbeat.is_late(kStart + Heartbeat::kLateNs + 1)) << "the next one was sent";
}

TEST(Heartbeat, AfterAPauseOfThisRankTheSilenceCountsAnew) {
  Heartbeat heartbeat;
  ASSERT_EQ(heartbeat.next(kStart, true), Action::kSend);
  std::uint64_t now = kStart + 100 * Heartbeat::kSilenceNs;
  EXPECT_EQ(heartbeat.next(now, false), Action::kNone)
      << "computing, stopped, or a jump of the clock";
  EXPECT_EQ(heartbeat.next(now += Heartbeat::kLongestPauseNs, false), Action::kNone);
  EXPECT_EQ(heartbeat.next(now += Heartbeat::kLongestPauseNs, false), Action::kNone);
  EXPECT_EQ(heartbeat.next(now += Heartbeat::kLongestPauseNs, false), Action::kEnd);
}

TEST(Heartbeat, APeerThatNeverReadsGetsALimitedNumber) {
  Heartbeat heartbeat;
  std::uint64_t now = kStart;
  const auto sent = [&](int looks) {
    std::uint32_t count = 0;
    for (int i = 0; i < looks; ++i) {
      count += heartbeat.next(now += Heartbeat::kIntervalNs, true) == Action::kSend ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(sent(1000), Heartbeat::kMostUnread);
  heartbeat.report();
  EXPECT_EQ(sent(1000), Heartbeat::kReadTogether);
}

TEST(Heartbeat, ReportsEveryFewBeats) {
  Heartbeat heartbeat;
  std::uint32_t reports = 0;
  for (std::uint32_t i = 0; i < 10 * Heartbeat::kReadTogether; ++i)
    reports += heartbeat.count() ? 1 : 0;
  EXPECT_EQ(reports, 10U);
  heartbeat.report(); // more than was sent
  EXPECT_EQ(heartbeat.next(kStart, true), Action::kSend);
}

} // namespace
} // namespace whorl
