// Tests of the conclusions that whorl-stat draws from what ranks show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "monitor/obstacle.h"
#include "monitor/recorder.h"
#include "tools/stat/processes.h"
#include "tools/stat/skew.h"
#include "tools/stat/table.h"
#include "tools/stat/why.h"

namespace whorl::stat {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kSecond = 1'000'000'000, kNow = 100 * kSecond;

monitor::RecordedOperation allreduce(std::uint32_t sequence, bool under_way,
                                     std::uint64_t began_ns = 90 * kSecond) {
  return {.number = sequence - 1,
          .fingerprint = {.sequence = sequence,
                          .types = static_cast<std::uint8_t>(DataType::kFloat32),
                          .count_plan = 8},
          .under_way = under_way,
          .began_ns = began_ns};
}

Rank rank(int number, int nranks = 4) {
  Rank made{.pid = 100 + number, .state = 'S', .page = {}};
  made.page.rank = number;
  made.page.nranks = nranks;
  made.page.host = "node7";
  made.page.phase = monitor::Phase::kReady;
  made.page.taken_ns = kNow;
  made.page.waited_ns.resize(static_cast<std::size_t>(nranks));
  return made;
}

Rank waiting(int number, int peer, std::uint32_t sequence = 7) {
  Rank made = rank(number);
  made.page.operations = {allreduce(sequence, true)};
  made.page.begun = sequence;
  made.page.wait = {.under_way = true,
                    .since_ns = kNow - 3 * kSecond,
                    .looked_ns = kNow - 1'000'000,
                    .peer = peer,
                    .text = "waiting for rank " + std::to_string(peer) + " (host x, pid 9)"};
  return made;
}

Rank idle(int number) {
  Rank made = rank(number);
  made.page.operations = {allreduce(6, false)};
  made.page.operations[0].ended_ns = kNow - 4 * kSecond;
  return made;
}

TEST(Why, EndsAtTheRankThatHasNotCome) {
  const auto found = find_culprits({waiting(0, 1), waiting(1, 3), waiting(2, 3), idle(3)});
  EXPECT_THAT(
      found,
      ElementsAre(AllOf(HasSubstr("ranks 0, 1, 2 wait in allreduce number 7 of 8 float32 (sum), "
                                  "for 3.0 s: rank 3 (host node7, pid 103) has not made this call"),
                        HasSubstr("no call for 4.0 s after allreduce number 6"))));
}

TEST(Why, LooksIntoOtherCommunicatorsOfAProcess) {
  Rank elsewhere = waiting(1, 0, 3);
  elsewhere.page.job[0] = std::byte{0xee};
  elsewhere.page.name = "tensor";
  const auto found = find_culprits({waiting(0, 1), idle(1), elsewhere});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_THAT(found[0],
              HasSubstr("rank 1 (host node7, pid 101) has not made this call; its process "
                        "is busy in communicator ee000000 \"tensor\": allreduce number 3"));
}

/// A rank that only had to send may be through, with the same call or with another one.
TEST(Why, TellsACompleteCallFromOneThatWasNotMade) {
  Rank through = idle(1);
  through.page.operations.push_back(allreduce(7, false));
  EXPECT_THAT(
      find_culprits({waiting(0, 1), through}),
      ElementsAre(HasSubstr("rank 1 (host node7, pid 101) has completed this call; no call")));
  through.page.operations.back().fingerprint.count_plan = 9;
  EXPECT_THAT(find_culprits({waiting(0, 1), through}),
              ElementsAre(HasSubstr("rank 1 (host node7, pid 101) has made another call, allreduce "
                                    "number 7 of 9 float32")));
}

TEST(Why, SaysThatARankIsStopped) {
  for (Rank stopped : {idle(3), waiting(3, 0)}) { // also within an operation
    stopped.state = 'T';
    const auto found = find_culprits({waiting(0, 1), waiting(1, 3), stopped});
    EXPECT_THAT(found, ElementsAre(HasSubstr("rank 3 (host node7, pid 103) is stopped, by a signal "
                                             "or a debugger; kill -CONT 103 lets it go on")));
  }
}

TEST(Why, SaysThatARankIsFrozen) {
  Rank frozen = waiting(3, 0);
  frozen.state = Rank::kFrozen;
  EXPECT_THAT(find_culprits({waiting(0, 1), waiting(1, 3), frozen}),
              ElementsAre(HasSubstr("rank 3 (host node7, pid 103) is frozen with its cgroup")));
}

TEST(Why, NamesARankInAnotherOperation) {
  Rank other = waiting(1, 0);
  other.page.operations[0].fingerprint.count_plan = 9;
  const auto found = find_culprits({waiting(0, 1), other});
  ASSERT_EQ(found.size(), 2U); // each waits for the other
  EXPECT_THAT(found[0], HasSubstr("is in another operation, allreduce number 7 of"));
}

/// The root of small broadcasts is ahead of those that receive them.
TEST(Why, FollowsRanksThatAreBehind) {
  Rank stopped = idle(2);
  stopped.state = 'T';
  EXPECT_THAT(find_culprits({waiting(0, 1, 9), waiting(1, 2, 7), stopped}),
              ElementsAre(AllOf(HasSubstr("ranks 0, 1 wait in allreduce number 9"),
                                HasSubstr("rank 2 (host node7, pid 102) is stopped"))));
}

TEST(Why, FollowsAWaitWhoseOperationIsNoLongerRemembered) {
  Rank forgetful = waiting(0, 1);
  forgetful.page.operations[0].under_way = false;
  const auto found = find_culprits({forgetful, idle(1)});
  EXPECT_THAT(found, ElementsAre(HasSubstr("rank 1 (host node7, pid 101) has not made this call")));
  EXPECT_THAT(monitor::activity(forgetful), HasSubstr("no longer remembered: waiting for rank 1"));
}

TEST(Why, PassesOnTheErrorOfARankThatHasFailed) {
  Rank failed = idle(1);
  failed.page.phase = monitor::Phase::kFailed;
  failed.page.error = "its device is lost";
  EXPECT_THAT(
      find_culprits({waiting(0, 1), failed}),
      ElementsAre(HasSubstr("rank 1 (host node7, pid 101) has failed: its device is lost")));
}

TEST(Why, EndsWhereThisMachineEnds) {
  EXPECT_THAT(
      find_culprits({waiting(0, 1)}),
      ElementsAre(AllOf(HasSubstr("rank 0 (host node7, pid 100) is waiting for rank 1 (host "
                                  "x, pid 9)"),
                        HasSubstr("another host"))));
}

TEST(Why, FindsCircles) {
  EXPECT_THAT(find_culprits({waiting(0, 1), waiting(1, 2), waiting(2, 0)}),
              ElementsAre(HasSubstr("ranks 0, 1, 2 wait for one another in a circle")));
}

TEST(Why, TakesNoNoticeOfShortAndOfOldWaits) {
  Rank brief = waiting(0, 1);
  brief.page.wait.since_ns = kNow - 5'000'000;
  Rank over = waiting(2, 1);
  over.page.wait.looked_ns = kNow - kSecond;
  EXPECT_THAT(find_culprits({brief, idle(1), over}), IsEmpty());
}

TEST(Why, ExplainsACreation) {
  Rank creating = rank(0);
  creating.page.phase = monitor::Phase::kCreating;
  creating.page.wait = {
      .under_way = true, .since_ns = kNow - 2 * kSecond, .text = "meeting the other ranks"};
  EXPECT_THAT(find_culprits({creating}),
              ElementsAre(HasSubstr("rank 0 waits in the creation of the communicator, for 2.0 s: "
                                    "meeting the other ranks; not on this machine, or not begun: "
                                    "1, 2, 3")));
  Rank stopped = creating;
  stopped.page.rank = 1;
  stopped.state = 'T';
  EXPECT_THAT(find_culprits({creating, stopped}),
              ElementsAre(HasSubstr("rank 1 (host node7, pid 100) is stopped")));
}

TEST(Table, HasALineForEachRank) {
  Rank other = idle(0);
  other.page.job[0] = std::byte{1};
  const std::string table = to_table({waiting(0, 1), idle(1), other});
  EXPECT_THAT(table, HasSubstr("waiting for rank 1 (host x, pid 9) for 3.0 s"));
  EXPECT_THAT(table, HasSubstr("no call for 4.0 s after allreduce number 6"));
  EXPECT_THAT(table, HasSubstr("communicator 00000000 of 4 ranks"));
  EXPECT_THAT(table, HasSubstr("communicator 01000000 of 4 ranks"));
}

TEST(Skew, CountsWhoCameLastAndWhatItCost) {
  std::vector<Rank> ranks{rank(0, 3), rank(1, 3), rank(2, 3)};
  for (std::uint32_t i = 1; i <= 3; ++i) {
    const std::uint64_t start = i * kSecond;
    ranks[0].page.operations.push_back(allreduce(i, false, start));
    ranks[1].page.operations.push_back(allreduce(i, false, start + (i == 3 ? 50 : 10)));
    ranks[2].page.operations.push_back(allreduce(i, false, start + 30));
  }
  ranks[0].page.operations.push_back(allreduce(4, true, 9 * kSecond)); // the others have not come
  ranks[0].page.waited_ns[2] = 70;
  ranks[1].page.waited_ns[2] = 30;
  const SkewReport report = find_skew(ranks);
  EXPECT_EQ(report.operations, 3);
  ASSERT_EQ(report.ranks.size(), 3U);
  EXPECT_EQ(report.ranks[0].rank, 2); // twice 30 + 20
  EXPECT_EQ(report.ranks[0].last, 2);
  EXPECT_EQ(report.ranks[0].cost_ns, 100U);
  EXPECT_EQ(report.ranks[0].late_ns, 40U);
  EXPECT_EQ(report.ranks[0].waited_for_ns, 100U);
  EXPECT_EQ(report.ranks[1].rank, 1);
  EXPECT_EQ(report.ranks[1].cost_ns, 70U);
  EXPECT_THAT(to_skew_table(ranks), HasSubstr("3 of 3 ranks here, the last 3 collectives"));
}

/// Pages of different programs may have the same number.
TEST(Skew, TakesNoPageForWhatItIsNot) {
  std::vector<Rank> ranks{rank(0, 1), rank(3, 4)};
  EXPECT_EQ(find_skew(ranks).ranks.size(), 2U);
}

TEST(Processes, FindsThisOne) {
  monitor::Recorder::Who who{.identity = {}, .info = {}, .nranks = 1, .name = "x"};
  who.info.process_id = static_cast<std::uint32_t>(::getpid());
  const auto recorder = monitor::Recorder::make(who, 8);
  const auto found = find_ranks({static_cast<int>(::getpid())});
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->ranks.size(), 1U);
  EXPECT_EQ(found->ranks[0].page.name, "x");
  EXPECT_EQ(found->ranks[0].pid, ::getpid());
}

TEST(Processes, RefusesAProcessThatDoesNotExist) {
  const auto found = find_ranks({1 << 30});
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.status().message(), HasSubstr("process 1073741824 does not exist"));
}

TEST(Durations, HaveUnits) {
  EXPECT_EQ(monitor::duration(3'240'000'000), "3.2 s");
  EXPECT_EQ(monitor::duration(12'300'000), "12 ms");
  EXPECT_EQ(monitor::duration(4'000), "4 µs");
}

} // namespace
} // namespace whorl::stat
