// Tests of going on without ranks: whorlCommShrink() and whorlCommRevoke().
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/failing_system.h"
#include "tests/support/process_world.h"

namespace whorl::test {
namespace {

using ::testing::HasSubstr;

/// Far below the timeout of 30 s.
constexpr std::chrono::seconds kSoon{8};

std::string last_error(whorlComm_t comm) { return whorlGetLastError(comm); }

/// Checks results of a communicator, and its place for the rank.
void expect_to_work(whorlComm_t comm, int rank, int nranks) {
  ASSERT_NE(comm, nullptr);
  int count = 0, own = -1;
  EXPECT_EQ(failure(whorlCommCount(comm, &count), comm), "");
  EXPECT_EQ(failure(whorlCommUserRank(comm, &own), comm), "");
  EXPECT_EQ(count, nranks);
  EXPECT_EQ(own, rank);
  for (const std::size_t elements : {1U, 1000U, 300'000U}) {
    std::vector<int> data(elements, own + 1);
    EXPECT_EQ(failure(whorlAllReduce(data.data(), data.data(), elements, whorlInt32, whorlSum, comm,
                                     nullptr),
                      comm),
              "");
    EXPECT_EQ(data, std::vector<int>(elements, nranks * (nranks + 1) / 2));
  }
}

class Shrink : public ::testing::TestWithParam<const char*> {
 protected:
  static Environment environment() { return {{"WHORL_TRANSPORTS", GetParam()}}; }
};

TEST_P(Shrink, GoesOnAfterDeaths) {
  const auto outcomes = run_ranks(5, Mode::kProcesses, [](RankContext& context) {
    whorlComm_t comm = join(context, environment());
    ASSERT_NE(comm, nullptr);
    std::vector<int> data(100'000, 1);
    const auto reduce = [&] {
      return whorlAllReduce(data.data(), data.data(), data.size(), whorlInt32, whorlMax, comm,
                            nullptr);
    };
    ASSERT_EQ(failure(reduce(), comm), "");
    context.barrier();
    if (context.rank == 0 || context.rank == 3) context.die();
    const auto start = std::chrono::steady_clock::now();
    whorlResult_t result = whorlSuccess;
    while (result == whorlSuccess) result = reduce();
    EXPECT_EQ(result, whorlRemoteError) << last_error(comm);

    const std::vector<int> gone{3, 0};
    whorlComm_t rest = nullptr;
    EXPECT_EQ(whorlCommShrink(comm, gone.data(), 2, &rest, nullptr, WHORL_SHRINK_DEFAULT),
              whorlInvalidUsage);
    EXPECT_NE(last_error(comm).find("WHORL_SHRINK_ABORT is needed"), std::string::npos);
    ASSERT_EQ(failure(whorlCommShrink(comm, gone.data(), 2, &rest, nullptr, WHORL_SHRINK_ABORT)),
              "");
    EXPECT_LT(std::chrono::steady_clock::now() - start, kSoon);
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
    expect_to_work(rest, context.rank < 3 ? context.rank - 1 : 2, 3);
    EXPECT_EQ(whorlCommDestroy(rest), whorlSuccess);
  });
  for (const int rank : {1, 2, 4}) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].failures, "") << rank;
  }
}

/// Without a list the dead are found by each rank itself; and the result can be shrunk again.
TEST_P(Shrink, FindsTheDead) {
  const auto outcomes = run_ranks(4, Mode::kProcesses, [](RankContext& context) {
    whorlComm_t comm = join(context, environment());
    ASSERT_NE(comm, nullptr);
    for (int nranks = 4; nranks > 1; --nranks) { // the last rank dies
      context.mode = Mode::kProcesses;
      EXPECT_EQ(failure(whorlBarrier(comm, nullptr), comm), "");
      if (context.rank == nranks - 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(30)); // others are in the barrier
        context.die();
      }
      EXPECT_EQ(whorlBarrier(comm, nullptr), whorlRemoteError);
      whorlComm_t rest = nullptr;
      ASSERT_EQ(failure(whorlCommShrink(comm, nullptr, 0, &rest, nullptr, WHORL_SHRINK_ABORT)), "");
      EXPECT_EQ(whorlCommAbort(comm), whorlSuccess);
      expect_to_work(rest, context.rank, nranks - 1);
      comm = rest;
    }
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
  EXPECT_EQ(outcomes[0].failures, "");
  for (const int rank : {1, 2, 3}) EXPECT_TRUE(outcomes[static_cast<std::size_t>(rank)].killed);
}

/// Lets ranks of four die where pidfds are forbidden; the others call `go_on`.
void without_pidfds(const std::set<int>& dead,
                    const std::function<void(int rank, whorlComm_t comm)>& go_on) {
  FailingSystem system;
  const auto outcomes = run_ranks(4, Mode::kProcesses, [&](RankContext& context) {
    const ScopedSystem scope(&system);
    system.fail("pidfd_open", EPERM);
    whorlComm_t comm = join(context, {{"WHORL_TRANSPORTS", "shm"}});
    ASSERT_NE(comm, nullptr);
    if (dead.contains(context.rank)) context.die();
    EXPECT_EQ(whorlBarrier(comm, nullptr), whorlRemoteError);
    go_on(context.rank, comm);
    EXPECT_EQ(whorlCommAbort(comm), whorlSuccess);
  });
  for (int rank = 0; rank < 4; ++rank) {
    const RankOutcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    EXPECT_EQ(outcome.killed, dead.contains(rank)) << rank;
    EXPECT_TRUE(outcome.killed || outcome.failures.empty()) << rank << ": " << outcome.failures;
  }
}

/// There only the lowest rank sees the death, and tells the others.
TEST(ShrinkInMemory, FindsTheDeadWherePidfdsAreForbidden) {
  without_pidfds({2}, [](int rank, whorlComm_t comm) {
    whorlComm_t rest = nullptr;
    ASSERT_EQ(failure(whorlCommShrink(comm, nullptr, 0, &rest, nullptr, WHORL_SHRINK_ABORT)), "");
    expect_to_work(rest, rank == 3 ? 2 : rank, 3);
    EXPECT_EQ(whorlCommDestroy(rest), whorlSuccess);
  });
}

/// Nobody sees the death of rank 2.
TEST(ShrinkInMemoryFull, AsksForAListWherePidfdsAreForbidden) {
  without_pidfds({0, 2}, [](int, whorlComm_t comm) {
    EXPECT_EQ(whorlCommSetTimeout(comm, 1000), whorlSuccess);
    whorlComm_t rest = nullptr;
    EXPECT_THAT(failure(whorlCommShrink(comm, nullptr, 0, &rest, nullptr, WHORL_SHRINK_ABORT)),
                HasSubstr("; if another rank has died, which this one may not see, pass the ranks "
                          "to exclude"));
  });
}

/// A communicator that works stays, and can be shrunk several times.
TEST_P(Shrink, LeavesAWorkingParentAlone) {
  const auto outcomes = run_ranks(4, Mode::kProcesses, [](RankContext& context) {
    whorlComm_t comm = join(context, environment());
    ASSERT_NE(comm, nullptr);
    for (int excluded = 0; excluded < 4; ++excluded) {
      whorlComm_t rest = nullptr;
      if (context.rank != excluded) {
        ASSERT_EQ(failure(whorlCommShrink(comm, &excluded, 1, &rest, nullptr, 0)), "");
        expect_to_work(rest, context.rank - (context.rank > excluded ? 1 : 0), 3);
        EXPECT_EQ(whorlCommDestroy(rest), whorlSuccess);
      }
      expect_to_work(comm, context.rank, 4);
    }
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

/// Settings that fit the whole do not stop its parts.
TEST_P(Shrink, DoesWithoutSettingsThatDoNotFit) {
  const auto outcomes = run_ranks(4, Mode::kProcesses, [](RankContext& context) {
    Environment settings = environment();
    settings.emplace_back("WHORL_DIMS", "2:ring,2");
    settings.emplace_back("WHORL_ALGO", "allgather:doubling"); // for a power of two
    whorlComm_t comm = join(context, settings);
    ASSERT_NE(comm, nullptr);
    whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
    for (whorlConfig_t* const given : {static_cast<whorlConfig_t*>(nullptr), &config}) {
      const int odd = context.rank % 2;
      whorlComm_t half = nullptr;
      ASSERT_EQ(failure(whorlCommSplit(comm, odd, 0, &half, given)), "");
      expect_to_work(half, context.rank / 2, 2);
      EXPECT_EQ(whorlCommDestroy(half), whorlSuccess);
    }
    context.barrier();
    const int gone = 1;
    if (context.rank == gone) context.die();
    whorlComm_t rest = nullptr;
    ASSERT_EQ(failure(whorlCommShrink(comm, &gone, 1, &rest, nullptr, WHORL_SHRINK_ABORT)), "");
    expect_to_work(rest, context.rank == 0 ? 0 : context.rank - 1, 3);
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
    EXPECT_EQ(whorlCommDestroy(rest), whorlSuccess);
  });
  for (const int rank : {0, 2, 3}) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].failures, "") << rank;
  }
}

/// A revoked communicator ends the operations of all ranks, and all of them go on together.
TEST_P(Shrink, FollowsARevocation) {
  const auto outcomes = run_ranks(3, Mode::kProcesses, [](RankContext& context) {
    whorlComm_t comm = join(context, environment());
    ASSERT_NE(comm, nullptr);
    if (context.rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50)); // others are in the barrier
      EXPECT_EQ(whorlCommRevoke(comm, 7), whorlInvalidArgument);
      EXPECT_EQ(failure(whorlCommRevoke(comm, WHORL_REVOKE_DEFAULT), comm), "");
    } else {
      EXPECT_EQ(whorlBarrier(comm, nullptr), whorlRemoteError);
      EXPECT_NE(last_error(comm).find("rank 1 (host"), std::string::npos) << last_error(comm);
      EXPECT_NE(last_error(comm).find("has called whorlCommRevoke"), std::string::npos);
    }
    whorlResult_t state = whorlSuccess;
    EXPECT_EQ(whorlCommGetAsyncError(comm, &state), whorlSuccess);
    EXPECT_EQ(state, whorlRemoteError);
    whorlComm_t next = nullptr;
    ASSERT_EQ(failure(whorlCommShrink(comm, nullptr, 0, &next, nullptr, WHORL_SHRINK_ABORT)), "");
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
    expect_to_work(next, context.rank, 3);
    EXPECT_EQ(whorlCommDestroy(next), whorlSuccess);
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

void expect_disagreement_on_number(const char* transport) {
  const auto outcomes = run_ranks(4, Mode::kProcesses, [&](RankContext& context) {
    whorlComm_t comm = join(context, {{"WHORL_TRANSPORTS", transport}});
    ASSERT_NE(comm, nullptr);
    context.barrier();
    if (context.rank == 3) context.die();
    const auto start = std::chrono::steady_clock::now();
    const std::vector<int> excluded = context.rank == 1 ? std::vector{3} : std::vector{2, 3};
    whorlComm_t rest = nullptr;
    const auto count = static_cast<int>(excluded.size());
    if (context.rank != 2) {
      EXPECT_NE(whorlCommShrink(comm, excluded.data(), count, &rest, nullptr, WHORL_SHRINK_ABORT),
                whorlSuccess);
      EXPECT_EQ(rest, nullptr);
      EXPECT_NE(last_error(comm).find("disagree about their number"), std::string::npos)
          << last_error(comm);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, kSoon);
    auto& failed = *reinterpret_cast<std::atomic<int>*>(context.shared());
    if (context.rank != 2) ++failed;
    while (failed.load() < 2) ::usleep(1000);
    // The next attempt may be right.
    const int dead = 3;
    ASSERT_EQ(failure(whorlCommShrink(comm, &dead, 1, &rest, nullptr, WHORL_SHRINK_ABORT)), "");
    expect_to_work(rest, context.rank, 3);
    EXPECT_EQ(whorlCommDestroy(rest), whorlSuccess);
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].failures, "") << rank;
  }
}

/// Lets ranks 0, 1 and 2 come, of which rank 1 wants to keep rank 3 instead of rank 2.
void expect_disagreement_on_members(const char* transport) {
  const auto outcomes = run_ranks(4, Mode::kProcesses, [&](RankContext& context) {
    whorlComm_t comm = join(context, {{"WHORL_TRANSPORTS", transport}});
    ASSERT_NE(comm, nullptr);
    if (context.rank != 3) {
      const int excluded = context.rank == 1 ? 2 : 3;
      whorlComm_t rest = nullptr;
      EXPECT_EQ(whorlCommShrink(comm, &excluded, 1, &rest, nullptr, WHORL_SHRINK_DEFAULT),
                whorlInvalidUsage);
      EXPECT_EQ(rest, nullptr);
      const std::string text = last_error(comm);
      EXPECT_TRUE(text.find("exclude different ranks") != std::string::npos ||
                  text.find("rank 2") != std::string::npos)
          << text;
    }
    context.barrier();
    expect_to_work(comm, context.rank, 4);
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST(ShrinkNames, ADisagreement) { with_each_transport(expect_disagreement_on_number); }
TEST(ShrinkNames, ADisagreementAboutEquallyMany) {
  with_each_transport(expect_disagreement_on_members);
}

/// Another death while the ranks wait for each other ends the wait, with the name in the parent.
TEST_P(Shrink, EndsWithAnotherDeath) {
  for (const int second : {0, 2}) { // the rank at which the others meet, and another one
    const auto outcomes = run_ranks(4, Mode::kProcesses, [second](RankContext& context) {
      whorlComm_t comm = join(context, environment());
      ASSERT_NE(comm, nullptr);
      context.barrier();
      const int first = 3;
      if (context.rank == first) context.die();
      if (context.rank == second) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        context.die();
      }
      const auto start = std::chrono::steady_clock::now();
      whorlComm_t rest = nullptr;
      EXPECT_EQ(whorlCommShrink(comm, &first, 1, &rest, nullptr, WHORL_SHRINK_ABORT),
                whorlRemoteError);
      const std::string text = last_error(comm);
      const std::string name = "rank " + std::to_string(second) + " (host";
      EXPECT_NE(text.find(name), std::string::npos) << text;
      EXPECT_LT(std::chrono::steady_clock::now() - start, kSoon) << text;
      const std::vector<int> gone{first, second};
      ASSERT_EQ(failure(whorlCommShrink(comm, gone.data(), 2, &rest, nullptr, WHORL_SHRINK_ABORT)),
                "");
      expect_to_work(rest, context.rank == (second == 0 ? 1 : 0) ? 0 : 1, 2);
      EXPECT_EQ(whorlCommDestroy(rest), whorlSuccess);
      EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
    });
    for (const int rank : {0, 1, 2}) {
      if (rank != second) {
        EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].failures, "") << rank;
      }
    }
  }
}

TEST_P(Shrink, RefusesWrongLists) {
  const auto outcomes = run_ranks(2, Mode::kProcesses, [](RankContext& context) {
    whorlComm_t comm = join(context, environment());
    ASSERT_NE(comm, nullptr);
    whorlComm_t rest = nullptr;
    const auto refused = [&](int rank, int count, int flags, const char* why) {
      EXPECT_EQ(whorlCommShrink(comm, count > 0 ? &rank : nullptr, count, &rest, nullptr, flags),
                whorlInvalidArgument);
      EXPECT_NE(std::string(whorlGetLastError(nullptr)).find(why), std::string::npos)
          << whorlGetLastError(nullptr);
    };
    refused(2, 1, 1, "excludeRanksList[0] is 2; it must be a rank from 0 to 1");
    refused(-1, 1, 1, "excludeRanksList[0] is -1");
    refused(context.rank, 1, 1, "which made the call, is in excludeRanksList");
    refused(0, -1, 1, "excludeRanksCount is negative");
    refused(1 - context.rank, 1, 6, "shrinkFlags is 6");
    expect_to_work(comm, context.rank, 2); // nothing was aborted
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

INSTANTIATE_TEST_SUITE_P(Transports, Shrink, ::testing::Values("shm", "tcp"),
                         [](const auto& transport) { return std::string(transport.param); });

} // namespace
} // namespace whorl::test
