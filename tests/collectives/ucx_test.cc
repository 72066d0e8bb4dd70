// Tests of collectives over UCX among processes: results, mismatches, deaths, and a host that has
// no UCX.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/all_operations.h"
#include "tests/support/oracle.h"
#include "tests/support/process_world.h"
#include "transports/ucx/make.h"

namespace whorl::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Tests over the transports of UCX that the parameter names, as UCX_TLS does.
class OverUcx : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const Status status = check_ucx();
    if (!status.ok()) GTEST_SKIP() << status.message();
  }
  static Environment by_ucx(Environment more = {}) {
    more.emplace_back("WHORL_TRANSPORTS", "ucx");
    more.emplace_back("UCX_TLS", GetParam());
    return more;
  }
  static void run(int nranks, const Environment& environment, const JoinedBody& body) {
    EXPECT_EQ(run_joined(nranks, by_ucx(environment), body), "") << nranks << " ranks";
  }
};

void run_all(const RankContext& context, whorlComm_t comm) {
  ASSERT_EQ(run_all_kinds(context.rank, context.nranks, comm, {0, 1, 1000, 300'001}), "");
  EXPECT_EQ(all_operations(context.rank, context.nranks, comm), "");
}

TEST_P(OverUcx, AllKindsOfTwoRanks) { run(2, {}, run_all); }
TEST_P(OverUcx, AllKindsOfFourRanks) { run(4, {}, run_all); }

TEST_P(OverUcx, SmallSlotsThatWrapAround) {
  run(3, {{"WHORL_SLOTS", "2"}, {"WHORL_SLOT_BYTES", "4096"}}, run_all);
}

TEST_P(OverUcx, LargeMessagesOfPairs) {
  run(2, {}, [](const RankContext& context, whorlComm_t comm) {
    constexpr std::size_t kCount = 3'000'001;
    std::vector<int> out(kCount), in(kCount);
    for (std::size_t i = 0; i < kCount; ++i) out[i] = static_cast<int>(i) + context.rank;
    const int peer = 1 - context.rank;
    whorlGroupStart();
    whorlSend(out.data(), kCount, whorlInt32, peer, comm, nullptr);
    whorlRecv(in.data(), kCount, whorlInt32, peer, comm, nullptr);
    ASSERT_EQ(failure(whorlGroupEnd(), comm), "");
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(in[i], static_cast<int>(i) + peer);
  });
}

/// Exchanges two vectors in each direction, in one group. Rank 1 has sent all it can when rank 0
/// begins.
void exchange_queues(int rank, whorlComm_t comm) {
  constexpr std::size_t kSizes[2][2] = {{22, 18'750}, {10'090, 18'750}};
  const int other = 1 - rank;
  std::vector<std::vector<std::int64_t>> out, in;
  for (const std::size_t size : kSizes[rank]) out.emplace_back(size, rank);
  for (const std::size_t size : kSizes[other]) in.emplace_back(size, -1);
  const auto receive = [&](std::size_t i) {
    whorlRecv(in[i].data(), in[i].size(), whorlInt64, other, comm, nullptr);
  };
  whorlGroupStart();
  receive(0);
  for (const auto& vector : out) {
    whorlSend(vector.data(), vector.size(), whorlInt64, other, comm, nullptr);
  }
  receive(1);
  if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
  ASSERT_EQ(failure(whorlGroupEnd(), comm), "");
  for (const auto& vector : in) {
    EXPECT_EQ(vector, std::vector<std::int64_t>(vector.size(), other));
  }
}

// A receive that has its messages must not wait for a send to the same peer, which may have to wait
// until the peer's next receive begins.
TEST_P(OverUcx, TransfersOfAPairInBothDirections) {
  run(2, {{"WHORL_SLOT_BYTES", "256"}},
      [](const RankContext& context, whorlComm_t comm) { exchange_queues(context.rank, comm); });
}

TEST_P(OverUcx, WhatWasSentBeforeLeavingArrives) {
  EXPECT_EQ(
      failures_of(run_ranks(
          2, Mode::kProcesses,
          [](RankContext& context) {
            whorlComm_t comm = join(context, by_ucx());
            ASSERT_NE(comm, nullptr);
            std::vector<int> data(context.rank == 0 ? 2000 : 0, 7), got(2000);
            if (context.rank == 0) {
              for (int i = 0; i < 3; ++i) {
                ASSERT_EQ(failure(whorlSend(data.data(), 2000, whorlInt32, 1, comm, nullptr), comm),
                          "");
              }
              EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
              context.barrier();
              return;
            }
            context.barrier(); // rank 0 has left
            for (int i = 0; i < 3; ++i) {
              ASSERT_EQ(failure(whorlRecv(got.data(), 2000, whorlInt32, 0, comm, nullptr), comm),
                        "");
              EXPECT_EQ(got, std::vector<int>(2000, 7));
            }
            EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
          })),
      "");
}

TEST_P(OverUcx, ADifferentOperatorIsNamedOnEveryRank) {
  for (const std::size_t count : {1U, 500'000U}) {
    run(3, {}, [count](const RankContext& context, whorlComm_t comm) {
      std::vector<float> in(count, 1), out(count, 5);
      const whorlRedOp_t op = context.rank == 1 ? whorlMax : whorlSum;
      EXPECT_NE(whorlAllReduce(in.data(), out.data(), count, whorlFloat32, op, comm, nullptr),
                whorlSuccess);
      EXPECT_THAT(whorlGetLastError(comm), AllOf(HasSubstr("max"), HasSubstr("sum")));
    });
  }
}

TEST_P(OverUcx, AKilledRankIsNamed) {
  for (const std::size_t count : {1U, 1'000'000U}) {
    const auto outcomes = run_ranks(4, Mode::kProcesses, [count](RankContext& context) {
      whorlComm_t comm = join(context, by_ucx());
      ASSERT_NE(comm, nullptr);
      std::vector<float> data(count);
      const auto sum = [&] {
        return whorlAllReduce(data.data(), data.data(), count, whorlFloat32, whorlSum, comm,
                              nullptr);
      };
      ASSERT_EQ(failure(sum(), comm), "");
      context.barrier();
      if (context.rank == 2) context.die();
      const auto start = std::chrono::steady_clock::now();
      whorlResult_t result = whorlSuccess;
      for (int i = 0; i < 3 && result == whorlSuccess; ++i) result = sum();
      EXPECT_EQ(result, whorlRemoteError);
      EXPECT_THAT(whorlGetLastError(comm), HasSubstr("rank 2 (host"));
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
      EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
    });
    EXPECT_TRUE(outcomes[2].killed);
    for (const int survivor : {0, 1, 3}) {
      EXPECT_EQ(outcomes[static_cast<std::size_t>(survivor)].failures, "") << survivor;
    }
  }
}

// "all": what UCX chooses by itself.
const auto name_of = [](const auto& tls) { return std::string(tls.param); };
INSTANTIATE_TEST_SUITE_P(Tls, OverUcx, ::testing::Values("tcp"), name_of);
INSTANTIATE_TEST_SUITE_P(Full, OverUcx, ::testing::Values("posix", "all"), name_of);

/// Expects that no communicator can be made in a process with this environment, and that the error
/// has these words.
void expect_refusal(const Environment& environment, const ::testing::Matcher<std::string>& words) {
  EXPECT_EQ(failures_of(run_ranks(1, Mode::kProcesses,
                                  [&](RankContext&) {
                                    for (const auto& [name, value] : environment) {
                                      setenv(name.c_str(), value.c_str(), 1);
                                    }
                                    whorlComm_t comms[2];
                                    EXPECT_NE(whorlCommInitAll(comms, 2, nullptr), whorlSuccess);
                                    EXPECT_THAT(std::string(whorlGetLastError(nullptr)), words);
                                  })),
            "");
}

// Runs before UCX is loaded: a process loads it once.
TEST(NoUcx, IsAClearErrorWhereItWasAskedFor) {
  expect_refusal({{"WHORL_TRANSPORTS", "ucx,tcp"}, {"WHORL_UCX_LIBRARY", "/nowhere/libucp.so.0"}},
                 AllOf(HasSubstr("ucx"), HasSubstr("WHORL_TRANSPORTS")));
}

TEST(NoUcx, AFabricThatUcxDoesNotHaveIsAClearError) {
  if (const Status status = check_ucx(); !status.ok()) GTEST_SKIP() << status.message();
  expect_refusal({{"WHORL_TRANSPORTS", "ucx"}, {"UCX_TLS", "nonsense"}},
                 AllOf(HasSubstr("UCX_TLS"), HasSubstr("ucx_info")));
}

} // namespace
} // namespace whorl::test
