// Tests of what the faults of WHORL_FAULTY lead to: right results, or errors on all ranks that name
// the rank which has the fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/system.h"
#include "tests/support/all_operations.h"
#include "tests/support/fast_clock.h"
#include "tests/support/process_world.h"

namespace whorl::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kRanks = 3;
constexpr int kFaulty = 1; ///< the rank that has the fault

const std::vector<const char*> kTransports = {"shm", "tcp"};

whorlResult_t all_reduce(whorlComm_t comm) {
  std::vector<float> data(100'000, 1.0F);
  const whorlResult_t result =
      whorlAllReduce(data.data(), data.data(), data.size(), whorlFloat32, whorlSum, comm, nullptr);
  if (result == whorlSuccess) {
    EXPECT_EQ(data, std::vector<float>(data.size(), float{kRanks}));
  }
  return result;
}

/// Runs `body` on ranks as processes whose messages have `faults`.
std::vector<RankOutcome> with_faults(const char* transport, const std::string& faults,
                                     const std::function<void(RankContext&, whorlComm_t)>& body) {
  return run_ranks(kRanks, Mode::kProcesses, [&](RankContext& context) {
    whorlComm_t comm = join(context, {{"WHORL_TRANSPORTS", transport},
                                      {"WHORL_TIMEOUT_MS", "1500"},
                                      {"WHORL_ALGO", "allreduce:ring"},
                                      {"WHORL_FAULTY", faults}});
    ASSERT_NE(comm, nullptr);
    body(context, comm);
    context.barrier();
    whorlCommAbort(comm);
  });
}

TEST(Faulty, LateMessagesGiveTheSameResults) {
  for (const char* const transport : kTransports) {
    const auto outcomes = with_faults(transport, "seed=3,delay=0.3:2ms,reorder=1ms",
                                      [](RankContext& context, whorlComm_t comm) {
                                        EXPECT_EQ(all_operations(context.rank, kRanks, comm), "");
                                        EXPECT_EQ(failure(all_reduce(comm), comm), "");
                                      });
    EXPECT_EQ(failures_of(outcomes), "") << transport;
  }
}

TEST(Faulty, AStallThatEndsIsNoError) {
  for (const char* const transport : kTransports) {
    const auto outcomes =
        with_faults(transport, "rank=1,stall@2:300ms", [](RankContext&, whorlComm_t comm) {
          const auto start = std::chrono::steady_clock::now();
          EXPECT_EQ(failure(all_reduce(comm), comm), "");
          EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(250));
        });
    EXPECT_EQ(failures_of(outcomes), "") << transport;
  }
}

TEST(Faulty, ARankThatStallsIsNamedAfterASecondAndAtTheDeadline) {
  for (const char* const transport : kTransports) {
    const auto outcomes =
        with_faults(transport, "rank=1,stall@1", [](RankContext& context, whorlComm_t comm) {
          ::testing::internal::CaptureStderr();
          EXPECT_EQ(all_reduce(comm), whorlRemoteError);
          const std::string warned = ::testing::internal::GetCapturedStderr();
          const std::string error = whorlGetLastError(comm);
          if (context.rank == kFaulty) return;
          EXPECT_THAT(warned, ContainsRegex("no progress for 1.* in allreduce number 1 .*: waiting "
                                            "for rank "));
          EXPECT_THAT(error, ContainsRegex("no progress within the timeout of 1.5 s.*\\. rank 1 "
                                           "\\(host .*\\) works on "));
        });
    EXPECT_EQ(failures_of(outcomes), "") << transport;
  }
}

/// By a clock that lets the default of 30 s pass in half a second.
TEST(Faulty, ARankThatStallsIsNamedAtTheDefaultDeadline) {
  static constexpr std::uint64_t kFactor = 60;
  const auto outcomes = run_ranks(
      kRanks, Mode::kProcesses,
      [](RankContext& context) {
        whorlComm_t comm =
            join(context, {{"WHORL_TRANSPORTS", "shm"}, {"WHORL_FAULTY", "rank=1,stall@1"}});
        ASSERT_NE(comm, nullptr);
        context.barrier();
        new ScopedSystem(
            new FastClock(kFactor)); // a thread of the library may use it until the end
        const auto start = std::chrono::steady_clock::now();
        EXPECT_EQ(all_reduce(comm), whorlRemoteError);
        EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(30) / kFactor);
        EXPECT_THAT(whorlGetLastError(comm),
                    ContainsRegex("no progress within the timeout of 30.0 s.*"
                                  "rank 1 \\(host .*\\) works on "));
        context.barrier();
        whorlCommAbort(comm);
      },
      {.timeout_ns = kFactor * 30'000'000'000});
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST(Faulty, ACutConnectionIsAnErrorThatNamesBothEnds) {
  for (const char* const transport : kTransports) {
    const auto outcomes =
        with_faults(transport, "rank=1,cut@2", [](RankContext&, whorlComm_t comm) {
          EXPECT_EQ(all_reduce(comm), whorlRemoteError);
          EXPECT_THAT(whorlGetLastError(comm),
                      ContainsRegex("the connection of rank 1 \\(host .*\\) to rank [02] "
                                    "\\(host .*\\) was cut at message 2"));
        });
    EXPECT_EQ(failures_of(outcomes), "") << transport;
  }
}

TEST(Faulty, AMessageThatLosesItsEndIsNoResult) {
  for (const char* const transport : kTransports) {
    const auto outcomes =
        with_faults(transport, "rank=1,truncate@2", [](RankContext& context, whorlComm_t comm) {
          EXPECT_EQ(all_reduce(comm),
                    context.rank == kFaulty ? whorlInternalError : whorlRemoteError);
          EXPECT_THAT(
              whorlGetLastError(comm),
              ContainsRegex("rank 1 \\(host .*\\) got [0-9]+ bytes from rank [02] \\(host .*\\) in "
                            "allreduce number 1 .*, where a message has [0-9]+: the transport has "
                            "lost data"));
        });
    EXPECT_EQ(failures_of(outcomes), "") << transport;
  }
}

TEST(Faulty, ARankIsKilledAtAMessage) {
  for (const char* const transport : kTransports) {
    const auto outcomes = run_ranks(kRanks, Mode::kProcesses, [&](RankContext& context) {
      whorlComm_t comm =
          join(context, {{"WHORL_TRANSPORTS", transport}, {"WHORL_FAULTY", "rank=1,kill@30"}});
      whorlResult_t result = whorlSuccess;
      for (int i = 0; i < 100 && result == whorlSuccess; ++i) result = all_reduce(comm);
      EXPECT_EQ(result, whorlRemoteError);
      EXPECT_THAT(whorlGetLastError(comm), HasSubstr("rank 1 (host "));
      EXPECT_THAT(whorlGetLastError(comm), Not(HasSubstr("rank 2 (host ")));
    });
    EXPECT_TRUE(outcomes[kFaulty].killed);
    EXPECT_EQ(outcomes[0].failures + outcomes[2].failures, "") << transport;
  }
}

TEST(Faulty, AVariableThatIsWrongIsAnErrorOfTheSetUp) {
  const auto outcomes = run_ranks(2, Mode::kProcesses, [](RankContext& context) {
    setenv("WHORL_FAULTY", "kill@never", 1);
    const whorlUniqueId id = shared_id(context);
    whorlComm_t comm = nullptr;
    EXPECT_EQ(whorlCommInitRank(&comm, context.nranks, id, context.rank), whorlInvalidUsage);
    EXPECT_THAT(whorlGetLastError(nullptr),
                AllOf(HasSubstr("WHORL_FAULTY=\"kill@never\""), HasSubstr("from 1")));
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

} // namespace
} // namespace whorl::test
