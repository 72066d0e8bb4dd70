// Tests with hundreds of processes of one host: every collective of the C API, and the death of one
// process.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/all_operations.h"
#include "tests/support/process_world.h"

namespace whorl::test {
namespace {

// Time for so many processes on a few cores, also under sanitizers.
constexpr RunOptions kPatient{.timeout_ns = 120'000'000'000};

TEST(ManyProcesses, ADeathIsKnownToAllThoughFewWatch) {
  const int nranks = 140, victim = 77; // so many that not every process watches every other
  const auto outcomes = run_ranks(
      nranks, Mode::kProcesses,
      [&](RankContext& context) {
        whorlComm_t comm = join(context, {});
        ASSERT_NE(comm, nullptr);
        ASSERT_EQ(failure(whorlBarrier(comm, nullptr), comm), "");
        context.barrier(); // all ranks have left that operation
        if (context.rank == victim) context.die();
        float one = 1, sum = 0;
        EXPECT_NE(whorlAllReduce(&one, &sum, 1, whorlFloat32, whorlSum, comm, nullptr),
                  whorlSuccess);
        const std::string error = whorlGetLastError(comm);
        EXPECT_NE(error.find("rank 77 (host"), std::string::npos) << error;
        whorlComm_t rest = nullptr;
        ASSERT_EQ(failure(whorlCommShrink(comm, nullptr, 0, &rest, nullptr, WHORL_SHRINK_ABORT)),
                  "");
        int count = 0;
        EXPECT_EQ(failure(whorlCommCount(rest, &count), rest), "");
        EXPECT_EQ(count, nranks - 1);
        EXPECT_EQ(whorlCommDestroy(rest), whorlSuccess);
        whorlCommDestroy(comm);
      },
      kPatient);
  for (int rank = 0; rank < nranks; ++rank) {
    const RankOutcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    EXPECT_EQ(outcome.killed, rank == victim) << rank;
    EXPECT_EQ(outcome.failures, "") << rank;
  }
}

TEST(ManyProcessesFull, Processes512) {
  const auto body = [](const RankContext& context, whorlComm_t comm) {
    EXPECT_EQ(all_operations(context.rank, context.nranks, comm), "");
  };
  EXPECT_EQ(run_joined(512, Environment{}, body, kPatient), "");
}

} // namespace
} // namespace whorl::test
