// Tests of ranks whose calls differ in a way that no message shows, since each rank waits for
// another: they get an error long before the deadline, which names both calls.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/process_world.h"

namespace whorl::test {
namespace {

constexpr std::size_t kMany = 4 << 20; ///< elements that do not fit into the slots

/// Returns zeros for each side of any collective of one rank. Pages that no call touches cost
/// nothing.
float* in() {
  static auto* const memory = static_cast<float*>(std::calloc(4 * kMany, sizeof(float)));
  return memory;
}
float* out() { return in() + 2 * kMany; }

/// Lets `ranks` ranks call, each in its way, and checks that all get an error soon whose text has
/// `expected`.
void expect_error(int ranks, const std::vector<const char*>& transports, const char* expected,
                  const std::function<whorlResult_t(int rank, whorlComm_t)>& call) {
  for (const char* const transport : transports) {
    const auto outcomes = run_ranks(ranks, Mode::kProcesses, [&](RankContext& context) {
      whorlComm_t comm = join(context, {{"WHORL_TRANSPORTS", transport}});
      ASSERT_NE(comm, nullptr);
      ASSERT_EQ(failure(whorlBarrier(comm, nullptr), comm), "");
      const auto start = std::chrono::steady_clock::now();
      EXPECT_NE(call(context.rank, comm), whorlSuccess);
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3))
          << "promised: 0.1 s";
      const std::string text = whorlGetLastError(comm);
      EXPECT_NE(text.find(expected), std::string::npos) << text;
      whorlCommAbort(comm);
    });
    EXPECT_EQ(failures_of(outcomes), "") << transport;
  }
}

const std::vector<const char*> kBoth = {"shm", "tcp"};

TEST(Disagreement, OnTheRootOfABroadcast) {
  expect_error(2, kBoth, "they differ in root (", [](int rank, whorlComm_t comm) {
    return whorlBroadcast(in(), out(), kMany, whorlFloat32, rank, comm, nullptr);
  });
}

/// Each rank gets all messages that it needs for a small broadcast; the next call finds the others,
/// and names the call they were for.
TEST(Disagreement, OnTheRootOfAnEarlierBroadcast) {
  expect_error(3, kBoth, "they differ in root (", [](int rank, whorlComm_t comm) {
    const int root = rank == 1 ? 1 : 0;
    const whorlResult_t first = whorlBroadcast(in(), out(), 5, whorlFloat32, root, comm, nullptr);
    if (first != whorlSuccess) return first;
    return whorlAllReduce(in(), out(), 5, whorlFloat32, whorlSum, comm, nullptr);
  });
}

TEST(Disagreement, OnTheRootOfAReduce) {
  expect_error(3, kBoth, "they differ in root (", [](int rank, whorlComm_t comm) {
    return whorlReduce(in(), out(), kMany, whorlFloat32, whorlSum, rank, comm, nullptr);
  });
}

TEST(Disagreement, OnTheRootOfAGather) {
  expect_error(2, kBoth, "they differ in root (", [](int rank, whorlComm_t comm) {
    return whorlGather(in(), out(), kMany, whorlFloat32, rank, comm, nullptr);
  });
}

TEST(Disagreement, OnTheRootOfAScatter) {
  expect_error(2, kBoth, "they differ in root (", [](int rank, whorlComm_t comm) {
    return whorlScatter(in(), out(), kMany, whorlFloat32, rank, comm, nullptr);
  });
}

TEST(Disagreement, OnTheOrderOfTwoCalls) {
  expect_error(2, kBoth, "they differ in collective (", [](int rank, whorlComm_t comm) {
    const auto gather = [&] {
      return whorlGather(in(), out(), kMany, whorlFloat32, 0, comm, nullptr);
    };
    const auto reduce = [&] {
      return whorlReduce(in(), out(), kMany, whorlFloat32, whorlSum, 1, comm, nullptr);
    };
    const whorlResult_t first = rank == 0 ? gather() : reduce();
    if (first != whorlSuccess) return first;
    return rank == 0 ? reduce() : gather();
  });
}

TEST(Disagreement, OfAReceiveAndACollective) {
  expect_error(2, kBoth, "ranks wait for each other in different operations: rank 0 ",
               [](int rank, whorlComm_t comm) {
                 // A message before, which has arrived.
                 whorlResult_t result = rank == 0
                                            ? whorlRecv(out(), 5, whorlFloat32, 1, comm, nullptr)
                                            : whorlSend(in(), 5, whorlFloat32, 0, comm, nullptr);
                 if (result != whorlSuccess) return result;
                 if (rank == 0) return whorlRecv(out(), 5, whorlFloat32, 1, comm, nullptr);
                 return whorlAllReduce(in(), out(), 5, whorlFloat32, whorlSum, comm, nullptr);
               });
}

/// The rank that receives waits for one that waits for it only by way of others.
TEST(Disagreement, OfAReceiveAndACollectiveOfFour) {
  expect_error(4, {"shm"}, "ranks wait for each other in different operations: rank 2 ",
               [](int rank, whorlComm_t comm) {
                 if (rank == 2) return whorlRecv(out(), 5, whorlFloat32, 0, comm, nullptr);
                 return whorlAllReduce(in(), out(), 5, whorlFloat32, whorlSum, comm, nullptr);
               });
}

/// Ranks that are late, or do several things at the same time, disagree on nothing.
TEST(Disagreement, IsNotSeenInLateCalls) {
  with_each_transport([](const char* transport) {
    const auto outcomes = run_ranks(3, Mode::kProcesses, [&](RankContext& context) {
      whorlComm_t comm = join(context, {{"WHORL_TRANSPORTS", transport}});
      ASSERT_NE(comm, nullptr);
      const int rank = context.rank, next = (rank + 1) % 3, before = (rank + 2) % 3;
      for (int round = 0; round < 3; ++round) {
        const auto late = [&](int who) {
          if (rank == who) std::this_thread::sleep_for(std::chrono::milliseconds(150));
        };
        late(round);
        ASSERT_EQ(
            failure(whorlReduce(in(), out(), 1000, whorlFloat32, whorlSum, round, comm, nullptr),
                    comm),
            "");
        ASSERT_EQ(whorlGroupStart(), whorlSuccess);
        ASSERT_EQ(whorlSend(in(), kMany, whorlFloat32, next, comm, nullptr), whorlSuccess);
        ASSERT_EQ(whorlRecv(out(), kMany, whorlFloat32, before, comm, nullptr), whorlSuccess);
        late(next);
        ASSERT_EQ(failure(whorlGroupEnd(), comm), "");
        if (rank == 0) {
          late(0);
          ASSERT_EQ(failure(whorlSend(in(), kMany, whorlFloat32, 1, comm, nullptr), comm), "");
        } else if (rank == 1) {
          ASSERT_EQ(failure(whorlRecv(out(), kMany, whorlFloat32, 0, comm, nullptr), comm), "");
        }
        ASSERT_EQ(failure(whorlBarrier(comm, nullptr), comm), "");
      }
      EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
    });
    EXPECT_EQ(failures_of(outcomes), "") << transport;
  });
}

} // namespace
} // namespace whorl::test
