// Tests that ranks on two hosts, which are network namespaces here, go on after deaths.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <vector>

#include "tests/support/cable.h"
#include "tests/support/process_world.h"

namespace whorl::test {
namespace {

/// Ranks 0 to 2 are on one host, 3 and 4 on the other. The ranks that remain meet at rank 1 of the
/// first host, then, when nobody is left there, at rank 3 of the other one.
TEST(ShrinkNamespaces, GoOnAfterDeaths) {
  if (::geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
  const Cable cable;
  if (!cable.ready()) GTEST_SKIP() << "network namespaces or veth are not available here";
  const auto outcomes = run_ranks(5, Mode::kProcesses, [](RankContext& context) {
    ASSERT_TRUE(Cable::enter(context.rank < 3 ? 0 : 1));
    whorlComm_t comm = join(context, {});
    ASSERT_NE(comm, nullptr);
    std::vector<std::vector<int>> rounds{{0}, {1, 2}};
    for (const std::vector<int>& gone : rounds) {
      int rank = -1, nranks = 0;
      ASSERT_EQ(failure(whorlCommUserRank(comm, &rank), comm), "");
      ASSERT_EQ(failure(whorlCommCount(comm, &nranks), comm), "");
      std::vector<int> excluded; // numbers in `comm`, whose lowest ranks die
      for (std::size_t i = 0; i < gone.size(); ++i) excluded.push_back(static_cast<int>(i));
      ASSERT_EQ(failure(whorlBarrier(comm, nullptr), comm), "");
      ::usleep(50'000); // all have left the barrier
      if (rank < static_cast<int>(gone.size())) context.die();
      const auto start = std::chrono::steady_clock::now();
      whorlComm_t rest = nullptr;
      ASSERT_EQ(failure(whorlCommShrink(comm, excluded.data(), static_cast<int>(excluded.size()),
                                        &rest, nullptr, WHORL_SHRINK_ABORT)),
                "");
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
      EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
      comm = rest;
      std::vector<int> data(100'000, 1);
      EXPECT_EQ(failure(whorlAllReduce(data.data(), data.data(), data.size(), whorlInt32, whorlSum,
                                       comm, nullptr),
                        comm),
                "");
      EXPECT_EQ(data, std::vector<int>(data.size(), nranks - static_cast<int>(gone.size())));
    }
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
  EXPECT_EQ(outcomes[3].failures, "");
  EXPECT_EQ(outcomes[4].failures, "");
  for (const std::size_t rank : {0U, 1U, 2U}) {
    EXPECT_TRUE(outcomes[rank].killed) << outcomes[rank].failures;
  }
}

/// After a cut each side goes on by itself: nobody has died, and each rank finds by itself whom it
/// cannot reach.
TEST(ShrinkNamespaces, GoOnAfterACut) {
  if (::geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
  Cable cable;
  if (!cable.ready()) GTEST_SKIP() << "network namespaces or veth are not available here";
  const auto outcomes = run_ranks(4, Mode::kProcesses, [&](RankContext& context) {
    ASSERT_TRUE(Cable::enter(context.rank % 2));
    whorlComm_t comm = join(context, {});
    ASSERT_NE(comm, nullptr);
    ASSERT_EQ(failure(whorlBarrier(comm, nullptr), comm), "");
    context.barrier();
    if (context.rank == 0) {
      EXPECT_TRUE(cable.cut());
    }
    context.barrier();
    EXPECT_EQ(whorlBarrier(comm, nullptr), whorlRemoteError);
    whorlComm_t rest = nullptr;
    ASSERT_EQ(failure(whorlCommShrink(comm, nullptr, 0, &rest, nullptr, WHORL_SHRINK_ABORT)), "");
    int rank = -1, nranks = 0;
    EXPECT_EQ(failure(whorlCommUserRank(rest, &rank), rest), "");
    EXPECT_EQ(failure(whorlCommCount(rest, &nranks), rest), "");
    EXPECT_EQ(nranks, 2);
    EXPECT_EQ(rank, context.rank / 2);
    EXPECT_EQ(failure(whorlBarrier(rest, nullptr), rest), "");
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
    EXPECT_EQ(whorlCommDestroy(rest), whorlSuccess);
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

} // namespace
} // namespace whorl::test
