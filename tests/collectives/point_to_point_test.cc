#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

std::vector<int> pattern(int from, int to, std::size_t count) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), from * 1'000'003 + to * 10'007);
  return values;
}

TEST(PointToPoint, PingPongOfManySizes) {
  ThreadWorld world(2);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    for (const std::size_t count : {0U, 1U, 17U, 4096U, 100'000U}) {
      const std::vector<int> mine = pattern(rank, 1 - rank, count);
      std::vector<int> theirs(count);
      for (int turn = 0; turn < 2; ++turn) {
        const whorlResult_t result =
            turn == rank ? whorlSend(mine.data(), count, whorlInt32, 1 - rank, comm, nullptr)
                         : whorlRecv(theirs.data(), count, whorlInt32, 1 - rank, comm, nullptr);
        if (result != whorlSuccess) return failure(result, comm);
      }
      if (theirs != pattern(1 - rank, rank, count)) return "wrong data";
    }
    return {};
  });
}

TEST(PointToPoint, ExchangeWithEveryoneIncludingItselfInAGroup) {
  constexpr int kRanks = 5;
  ThreadWorld world(kRanks);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    constexpr std::size_t kCount = 60'000; // more than fits into the slots
    std::vector<std::vector<int>> out, in(kRanks, std::vector<int>(kCount));
    for (int peer = 0; peer < kRanks; ++peer) out.push_back(pattern(rank, peer, kCount));
    whorlGroupStart();
    for (int peer = 0; peer < kRanks; ++peer) {
      const auto p = static_cast<std::size_t>(peer);
      whorlSend(out[p].data(), kCount, whorlInt32, peer, comm, nullptr);
      whorlRecv(in[p].data(), kCount, whorlInt32, peer, comm, nullptr);
    }
    if (std::string f = failure(whorlGroupEnd(), comm); !f.empty()) return f;
    for (int peer = 0; peer < kRanks; ++peer) {
      if (in[static_cast<std::size_t>(peer)] != pattern(peer, rank, kCount)) return "wrong data";
    }
    return {};
  });
}

TEST(PointToPoint, SeveralMessagesToOnePeerKeepTheirOrder) {
  ThreadWorld world(2);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    std::vector<int> values(20);
    std::iota(values.begin(), values.end(), 0);
    std::vector<int> got(20);
    whorlGroupStart();
    for (std::size_t i = 0; i < 20; ++i) {
      if (rank == 0) whorlSend(&values[i], 1, whorlInt32, 1, comm, nullptr);
      if (rank == 1) whorlRecv(&got[i], 1, whorlInt32, 0, comm, nullptr);
    }
    if (std::string f = failure(whorlGroupEnd(), comm); !f.empty()) return f;
    return rank == 0 || got == values ? "" : "wrong order";
  });
}

TEST(PointToPoint, CollectivesAndTransfersInOneGroup) {
  ThreadWorld world(3);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    const int next = (rank + 1) % 3, previous = (rank + 2) % 3;
    const int mine = rank;
    int theirs = -1;
    std::vector<int> one(1000, 1), sum(1000);
    whorlGroupStart();
    whorlSend(&mine, 1, whorlInt32, next, comm, nullptr);
    whorlAllReduce(one.data(), sum.data(), 1000, whorlInt32, whorlSum, comm, nullptr);
    whorlRecv(&theirs, 1, whorlInt32, previous, comm, nullptr);
    if (std::string f = failure(whorlGroupEnd(), comm); !f.empty()) return f;
    return theirs == previous && sum[999] == 3 ? "" : "wrong data";
  });
}

TEST(PointToPoint, MismatchedSizesAreAnErrorOnTheReceiver) {
  ThreadWorld world(2);
  std::vector<int> data(8, 7);
  world.each([&](int rank, whorlComm_t comm) -> std::string {
    std::vector<int> got(16, -1);
    if (rank == 0) {
      static_cast<void>(whorlSend(data.data(), 8, whorlInt32, 1, comm, nullptr));
      return {};
    }
    if (whorlRecv(got.data(), 9, whorlInt32, 0, comm, nullptr) != whorlInvalidUsage) {
      return "a wrong count was accepted";
    }
    const std::string text = whorlGetLastError(comm);
    if (text.find("count (9 here, 8 there)") == std::string::npos) return text;
    return got == std::vector<int>(16, -1) ? "" : "the buffer was touched";
  });
}

TEST(PointToPoint, HalvesThatDoNotFitLeaveTheWholeGroupUndone) {
  ThreadWorld world(1), other(1);
  whorlStream_t stream = nullptr;
  ASSERT_EQ(whorlStreamCreate(&stream), whorlSuccess);
  for (void* const on : {static_cast<void*>(nullptr), static_cast<void*>(stream)}) {
    const int from[2] = {3, 4};
    int to[2] = {0, 0}, sum = 0;
    ASSERT_EQ(whorlGroupStart(), whorlSuccess);
    whorlAllReduce(from, &sum, 1, whorlInt32, whorlSum, other.comm(0), on);
    whorlSend(from, 2, whorlInt32, 0, world.comm(0), on);
    whorlRecv(to, 1, whorlInt32, 0, world.comm(0), on);
    EXPECT_EQ(whorlGroupEnd(), whorlInvalidUsage);
    const std::string text = whorlGetLastError(nullptr);
    EXPECT_NE(text.find("send of 2 int32"), std::string::npos) << text;
    EXPECT_EQ(whorlStreamSynchronize(stream), whorlSuccess);
    EXPECT_EQ(sum, 0);
    EXPECT_EQ(to[0], 0);
  }
  EXPECT_EQ(whorlStreamDestroy(stream), whorlSuccess);
}

TEST(PointToPoint, ASendToItselfAloneIsRefused) {
  ThreadWorld world(1);
  int value = 1;
  EXPECT_EQ(whorlSend(&value, 1, whorlInt32, 0, world.comm(0), nullptr), whorlInvalidUsage);
  EXPECT_EQ(whorlBarrier(world.comm(0), nullptr), whorlSuccess);
}

} // namespace
} // namespace whorl::test
