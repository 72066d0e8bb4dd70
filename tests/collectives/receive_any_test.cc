// Tests of receives from any rank, also while ranks leave, and of the timeout of single operations.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/process_world.h"
#include "transports/ucx/make.h"

namespace whorl::test {
namespace {

/// Transports for threads of one process; processes_test.cc tests the others.
class ReceiveAny : public ::testing::TestWithParam<const char*> {
 protected:
  ScopedEnv env_{{"WHORL_TRANSPORTS", GetParam()}};
};

TEST_P(ReceiveAny, TakesEveryMessageOnceAndInTheOrderOfItsSender) {
  constexpr int kRanks = 4, kMessages = 50;
  ThreadWorld world(kRanks);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    for (const std::size_t count : {1U, 3000U, 100'000U}) {
      // No send of the next size may arrive while a rank waits for this size.
      if (std::string f = failure(whorlBarrier(comm, nullptr), comm); !f.empty()) return f;
      const int messages = count > 10'000 ? 5 : kMessages;
      std::vector<int> data(count);
      if (rank != 0) {
        for (int m = 0; m < messages; ++m) {
          std::fill(data.begin(), data.end(), rank * 1000 + m);
          if (std::string f =
                  failure(whorlSend(data.data(), count, whorlInt32, 0, comm, nullptr), comm);
              !f.empty()) {
            return f;
          }
        }
        continue;
      }
      std::array<int, kRanks> next{};
      for (int m = 0; m < messages * (kRanks - 1); ++m) {
        int source = -1;
        if (std::string f =
                failure(whorlRecvAny(data.data(), count, whorlInt32, &source, comm, nullptr), comm);
            !f.empty()) {
          return f;
        }
        if (source < 1 || source >= kRanks) return "source is " + std::to_string(source);
        const int expected = source * 1000 + next[static_cast<std::size_t>(source)]++;
        if (data.front() != expected || data.back() != expected) return "wrong data or order";
      }
    }
    return {};
  });
}

TEST_P(ReceiveAny, RanksTakeTurns) {
  constexpr int kRanks = 4;
  ThreadWorld world(kRanks);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    const int value = rank;
    if (rank != 0) { // two small messages of each rank, all arrived before the first receive
      for (int i = 0; i < 2; ++i) {
        if (std::string f = failure(whorlSend(&value, 1, whorlInt32, 0, comm, nullptr), comm);
            !f.empty()) {
          return f;
        }
      }
    }
    if (std::string f = failure(whorlBarrier(comm, nullptr), comm); !f.empty()) return f;
    if (rank != 0) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(50)); // a socket's bytes may arrive later
    std::vector<int> sources;
    for (int i = 0; i < 6; ++i) {
      int got = -1, source = -1;
      if (std::string f = failure(whorlRecvAny(&got, 1, whorlInt32, &source, comm, nullptr), comm);
          !f.empty()) {
        return f;
      }
      if (got != source) return "wrong source";
      sources.push_back(source);
    }
    return sources == std::vector<int>{1, 2, 3, 1, 2, 3} ? "" : "somebody had two turns";
  });
}

TEST_P(ReceiveAny, CountsAmongTheReceivesFromItsSender) {
  ThreadWorld world(2);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    for (int i = 0; i < 6; ++i) {
      int value = i, source = -1;
      const whorlResult_t result = rank == 0 ? whorlSend(&value, 1, whorlInt32, 1, comm, nullptr)
                                   : i % 2 == 0
                                       ? whorlRecvAny(&value, 1, whorlInt32, &source, comm, nullptr)
                                       : whorlRecv(&value, 1, whorlInt32, 0, comm, nullptr);
      if (std::string f = failure(result, comm); !f.empty()) return f;
      if (value != i) return "wrong order";
    }
    return {};
  });
}

TEST_P(ReceiveAny, InGroupsAndOnStreams) {
  constexpr int kRanks = 3;
  ThreadWorld world(kRanks);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    whorlStream_t stream = nullptr;
    if (std::string f = failure(whorlStreamCreate(&stream)); !f.empty()) return f;
    for (void* const on : {static_cast<void*>(nullptr), static_cast<void*>(stream)}) {
      // Each rank sends to each other rank and receives in any order.
      std::array<int, 2> got{-1, -1}, sources{-1, -1};
      const int mine = rank;
      int sum = 0;
      if (whorlGroupStart() != whorlSuccess) return "no group";
      for (std::size_t i = 0; i < 2; ++i) {
        const int to = (rank + 1 + static_cast<int>(i)) % kRanks;
        static_cast<void>(whorlRecvAny(&got[i], 1, whorlInt32, &sources[i], comm, on));
        static_cast<void>(whorlSend(&mine, 1, whorlInt32, to, comm, on));
      }
      static_cast<void>(whorlAllReduce(&mine, &sum, 1, whorlInt32, whorlSum, comm, on));
      if (std::string f = failure(whorlGroupEnd(), comm); !f.empty()) return f;
      if (std::string f = failure(whorlStreamSynchronize(stream), comm); !f.empty()) return f;
      if (got != sources || got[0] + got[1] != 3 - rank || got[0] == got[1]) return "wrong data";
      if (sum != 3) return "wrong sum";
      // The next round's messages must not be received in this round.
      if (std::string f = failure(whorlBarrier(comm, nullptr), comm); !f.empty()) return f;
    }
    return failure(whorlStreamDestroy(stream));
  });
}

TEST_P(ReceiveAny, AWrongCountNamesTheSender) {
  ThreadWorld world(3);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    std::vector<int> data(9, rank);
    if (rank == 2) {
      static_cast<void>(whorlSend(data.data(), 8, whorlInt32, 0, comm, nullptr));
    }
    if (rank != 0) return {};
    int source = -5;
    if (whorlRecvAny(data.data(), 9, whorlInt32, &source, comm, nullptr) != whorlInvalidUsage) {
      return "a wrong count was accepted";
    }
    const std::string text = whorlGetLastError(comm);
    if (text.find("count (9 here, 8 there)") == std::string::npos) return text;
    if (text.find("rank 2") == std::string::npos) return text;
    if (data != std::vector<int>(9, 0)) return "the buffer was touched";
    return source == -5 ? "" : "source was touched";
  });
}

TEST_P(ReceiveAny, WaitsForAnyRankUntilTheTimeoutOfTheOperation) {
  ThreadWorld world(2);
  whorlComm_t const comm = world.comm(0);
  ASSERT_EQ(whorlCommSetTimeout(comm, 200), whorlSuccess);
  int value = 0, source = -5;
  EXPECT_EQ(whorlRecvAny(&value, 1, whorlInt32, &source, comm, nullptr), whorlRemoteError);
  const std::string text = whorlGetLastError(comm);
  EXPECT_NE(text.find("any rank"), std::string::npos) << text;
  EXPECT_NE(text.find("0.2 s"), std::string::npos) << text;
  EXPECT_EQ(source, -5);
}

std::string transport_name(const ::testing::TestParamInfo<const char*>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(Transports, ReceiveAny, ::testing::Values("inproc", "tcp"),
                         transport_name);

/// Ranks that leave while another one waits for any rank.
class ReceiveAnyFromLeavers : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) != "ucx") return;
    const Status status = check_ucx();
    if (!status.ok()) GTEST_SKIP() << status.message();
  }
  static std::string run(const std::function<void(int rank, whorlComm_t)>& body) {
    return failures_of(run_ranks(3, Mode::kThreads, [&](RankContext& context) {
      whorlComm_t comm = join(context, {});
      ASSERT_NE(comm, nullptr);
      body(context.rank, comm);
      EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
    }));
  }
  ScopedEnv env_{{"WHORL_TRANSPORTS", GetParam()}, {"UCX_TLS", "tcp,self"}};
};

TEST_P(ReceiveAnyFromLeavers, OthersMayLeaveFirst) {
  EXPECT_EQ(run([](int rank, whorlComm_t comm) {
              if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(100));
              int value = rank;
              if (rank != 0) {
                ASSERT_EQ(failure(whorlSend(&value, 1, whorlInt32, 0, comm, nullptr), comm), "");
                return;
              }
              int sources = 0;
              for (int i = 0; i < 2; ++i) {
                int source = -1;
                ASSERT_EQ(
                    failure(whorlRecvAny(&value, 1, whorlInt32, &source, comm, nullptr), comm), "");
                EXPECT_EQ(value, source);
                sources += source;
              }
              EXPECT_EQ(sources, 1 + 2);
            }),
            "");
}

TEST_P(ReceiveAnyFromLeavers, NobodyIsLeft) {
  EXPECT_EQ(run([](int rank, whorlComm_t comm) {
              if (rank != 0) return;
              int value = 0, source = -5;
              EXPECT_EQ(whorlRecvAny(&value, 1, whorlInt32, &source, comm, nullptr),
                        whorlRemoteError);
              const std::string text = whorlGetLastError(comm);
              EXPECT_NE(text.find("has destroyed its communicator"), std::string::npos) << text;
              EXPECT_EQ(source, -5);
            }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Transports, ReceiveAnyFromLeavers,
                         ::testing::Values("inproc", "tcp", "ucx"), transport_name);

TEST(ReceiveAnyArguments, BadOnesAreRefused) {
  ThreadWorld world(2);
  whorlComm_t const comm = world.comm(0);
  const auto refused = [](whorlResult_t result, const std::string& word,
                          whorlResult_t wanted = whorlInvalidArgument) {
    EXPECT_EQ(result, wanted);
    const std::string text = whorlGetLastError(nullptr);
    EXPECT_NE(text.find(word), std::string::npos) << text;
  };
  int value = 0, source = 0;
  refused(whorlRecvAny(&value, 1, whorlInt32, nullptr, comm, nullptr), "source is NULL");
  refused(whorlRecvAny(nullptr, 1, whorlInt32, &source, comm, nullptr), "recvbuff is NULL");
  refused(whorlRecvAny(&value, SIZE_MAX, whorlInt32, &source, comm, nullptr), "overflow");
  refused(whorlRecvAny(&value, 1, static_cast<whorlDataType_t>(15), &source, comm, nullptr),
          "datatype is 15");
  refused(whorlRecvAny(&value, 1, whorlInt32, &source, nullptr, nullptr), "comm is NULL");
  refused(whorlRecv(&value, 1, whorlInt32, -1, comm, nullptr), "peer is -1");
  ASSERT_EQ(whorlGroupStart(), whorlSuccess);
  EXPECT_EQ(whorlRecvAny(&value, 1, whorlInt32, &source, comm, nullptr), whorlSuccess);
  EXPECT_EQ(whorlRecv(&value, 1, whorlInt32, 1, comm, nullptr), whorlSuccess);
  refused(whorlGroupEnd(), "whorlRecvAny and whorlRecv", whorlInvalidUsage);
  for (const int bad : {0, -1, -1000}) {
    refused(whorlCommSetTimeout(comm, bad), "ms is " + std::to_string(bad));
  }
  refused(whorlCommSetTimeout(nullptr, 5), "comm is NULL");
  ThreadWorld alone(1);
  refused(whorlRecvAny(&value, 1, whorlInt32, &source, alone.comm(0), nullptr), "no other rank");
  world.each([](int, whorlComm_t each) { return failure(whorlBarrier(each, nullptr), each); });
}

TEST(Timeout, IsThatOfTheTimeOfIssue) {
  ThreadWorld world(2);
  whorlComm_t const comm = world.comm(0);
  whorlStream_t stream = nullptr;
  ASSERT_EQ(whorlStreamCreate(&stream), whorlSuccess);
  ASSERT_EQ(whorlCommSetTimeout(comm, 20'000), whorlSuccess);
  ASSERT_EQ(whorlBarrier(comm, stream), whorlSuccess);
  ASSERT_EQ(whorlCommSetTimeout(comm, 100), whorlSuccess);
  // The queued barrier keeps the longer timeout that was set when it was issued.
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  EXPECT_EQ(whorlStreamQuery(stream), whorlInProgress);
  EXPECT_EQ(whorlBarrier(world.comm(1), nullptr), whorlSuccess);
  EXPECT_EQ(whorlStreamSynchronize(stream), whorlSuccess);
  // This barrier has the short timeout.
  EXPECT_EQ(whorlBarrier(comm, nullptr), whorlRemoteError);
  const std::string text = whorlGetLastError(comm);
  EXPECT_NE(text.find("no progress within the timeout of 0.1 s"), std::string::npos) << text;
  EXPECT_NE(text.find("whorlCommSetTimeout"), std::string::npos) << text;
  EXPECT_EQ(whorlStreamDestroy(stream), whorlSuccess);
}

TEST(Timeout, IsKeptByRepeatedCalls) {
  ThreadWorld world(2);
  world.each([](int rank, whorlComm_t comm) -> std::string {
    float in = 1, out = 0;
    for (int i = 0; i < 3; ++i) {
      if (std::string f =
              failure(whorlAllReduce(&in, &out, 1, whorlFloat32, whorlSum, comm, nullptr), comm);
          !f.empty()) {
        return f;
      }
    }
    if (rank == 1) return {};
    if (std::string f = failure(whorlCommSetTimeout(comm, 150), comm); !f.empty()) return f;
    if (whorlAllReduce(&in, &out, 1, whorlFloat32, whorlSum, comm, nullptr) != whorlRemoteError) {
      return "waited for nobody";
    }
    const std::string text = whorlGetLastError(comm);
    // The error shows the time in tenths of seconds.
    return text.find("no progress within the timeout of 0.1 s") != std::string::npos ||
                   text.find("no progress within the timeout of 0.2 s") != std::string::npos
               ? ""
               : text;
  });
}

} // namespace
} // namespace whorl::test
