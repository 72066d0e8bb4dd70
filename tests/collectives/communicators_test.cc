// Tests of the life of communicators: creation, division, several at once, groups, destruction.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

/// Sums 1 over all ranks and expects `ranks`.
std::string sum_of_ones(whorlComm_t comm, int ranks, std::size_t count = 257) {
  std::vector<int> ones(count, 1), sum(count);
  if (std::string f = failure(
          whorlAllReduce(ones.data(), sum.data(), count, whorlInt32, whorlSum, comm, nullptr),
          comm);
      !f.empty()) {
    return f;
  }
  for (const int value : sum) {
    if (value != ranks) return "sum is " + std::to_string(value);
  }
  return {};
}

TEST(Communicators, ByUniqueId) {
  for (const int n : {1, 2, 5}) {
    whorlUniqueId id;
    ASSERT_EQ(failure(whorlGetUniqueId(&id)), "");
    std::vector<std::thread> threads;
    std::vector<std::string> failures(static_cast<std::size_t>(n));
    for (int rank = 0; rank < n; ++rank) {
      threads.emplace_back([&, rank] {
        std::string& f = failures[static_cast<std::size_t>(rank)];
        whorlComm_t comm = nullptr;
        f = failure(whorlCommInitRank(&comm, n, id, rank));
        if (!f.empty()) return;
        int count = 0, self = -1, device = 0;
        whorlCommCount(comm, &count);
        whorlCommUserRank(comm, &self);
        whorlCommCuDevice(comm, &device);
        if (count != n || self != rank || device != -1) f = "wrong count, rank or device";
        if (f.empty()) f = sum_of_ones(comm, n);
        if (f.empty()) f = failure(whorlCommFinalize(comm), comm);
        whorlCommDestroy(comm);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& f : failures) EXPECT_EQ(f, "");
  }
}

TEST(Communicators, AreDescribedAlikeOnAllRanks) {
  whorlComm_t comms[2]{};
  ASSERT_EQ(whorlCommInitAll(comms, 2, nullptr), whorlSuccess);
  char first[200] = {}, second[200] = {}, cut[8] = {};
  EXPECT_EQ(whorlCommDescribe(comms[0], first, sizeof first), whorlSuccess);
  EXPECT_EQ(whorlCommDescribe(comms[1], second, sizeof second), whorlSuccess);
  EXPECT_EQ(std::string(first).find("2 ranks on 1 host; topology "), 0U) << first;
  EXPECT_STREQ(first, second);
  EXPECT_EQ(whorlCommDescribe(comms[0], cut, sizeof cut), whorlSuccess);
  EXPECT_STREQ(cut, "2 ranks");
  EXPECT_EQ(whorlCommDescribe(comms[0], nullptr, 5), whorlInvalidArgument);
  EXPECT_EQ(whorlCommDescribe(comms[0], cut, 0), whorlInvalidArgument);
  EXPECT_EQ(whorlCommDescribe(nullptr, cut, sizeof cut), whorlInvalidArgument);

  const char* name = nullptr;
  EXPECT_EQ(whorlCommGetTransport(comms[0], 1, &name), whorlSuccess);
  EXPECT_STREQ(name, "inproc");
  EXPECT_EQ(whorlCommGetTransport(comms[1], 1, &name), whorlSuccess);
  EXPECT_STREQ(name, "");
  EXPECT_EQ(whorlCommGetTransport(comms[0], 2, &name), whorlInvalidArgument);
  EXPECT_EQ(std::string(whorlGetLastError(comms[0])).find("peer 2 is not one of 2 ranks") !=
                std::string::npos,
            true);
  EXPECT_EQ(whorlCommGetTransport(comms[0], -1, &name), whorlInvalidArgument);
  EXPECT_EQ(whorlCommGetTransport(comms[0], 1, nullptr), whorlInvalidArgument);
  for (const whorlComm_t comm : comms) whorlCommDestroy(comm);
}

TEST(Communicators, SeveralRanksOfOneThreadInAGroup) {
  whorlUniqueId id;
  ASSERT_EQ(whorlGetUniqueId(&id), whorlSuccess);
  whorlComm_t comms[3]{};
  ASSERT_EQ(whorlGroupStart(), whorlSuccess);
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(whorlCommInitRank(&comms[rank], 3, id, rank), whorlSuccess);
  }
  ASSERT_EQ(failure(whorlGroupEnd()), "");
  ASSERT_EQ(whorlGroupStart(), whorlSuccess);
  std::vector<std::vector<int>> data(3, std::vector<int>(100, 1));
  for (int rank = 0; rank < 3; ++rank) {
    int* const buffer = data[static_cast<std::size_t>(rank)].data();
    ASSERT_EQ(whorlAllReduce(buffer, buffer, 100, whorlInt32, whorlSum, comms[rank], nullptr),
              whorlSuccess);
  }
  ASSERT_EQ(failure(whorlGroupEnd()), "");
  for (const auto& buffer : data) EXPECT_EQ(buffer, std::vector<int>(100, 3));
  for (whorlComm_t comm : comms) EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
}

TEST(Communicators, NonblockingCreation) {
  whorlUniqueId id;
  ASSERT_EQ(whorlGetUniqueId(&id), whorlSuccess);
  whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
  config.blocking = 0;
  whorlComm_t comms[2]{};
  EXPECT_EQ(whorlCommInitRankConfig(&comms[0], 2, id, 0, &config), whorlInProgress);
  ASSERT_NE(comms[0], nullptr);
  whorlResult_t state = whorlSuccess;
  ASSERT_EQ(whorlCommGetAsyncError(comms[0], &state), whorlSuccess);
  EXPECT_EQ(state, whorlInProgress); // rank 1 has not joined yet
  EXPECT_EQ(whorlBarrier(comms[0], nullptr), whorlInvalidUsage);
  EXPECT_EQ(whorlCommInitRankConfig(&comms[1], 2, id, 1, &config), whorlInProgress);
  for (whorlComm_t comm : comms) {
    for (int i = 0; i < 10'000; ++i) {
      ASSERT_EQ(whorlCommGetAsyncError(comm, &state), whorlSuccess);
      if (state != whorlInProgress) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(state, whorlSuccess) << whorlGetLastError(comm);
  }
  std::thread other([&] { EXPECT_EQ(sum_of_ones(comms[1], 2), ""); });
  EXPECT_EQ(sum_of_ones(comms[0], 2), "");
  other.join();
  for (whorlComm_t comm : comms) EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
}

TEST(Communicators, AMissingRankIsNamed) {
  const ScopedEnv env({{"WHORL_TIMEOUT_MS", "500"}});
  whorlUniqueId id;
  ASSERT_EQ(whorlGetUniqueId(&id), whorlSuccess);
  std::vector<std::thread> threads;
  for (const int rank : {0, 1, 3}) {
    threads.emplace_back([&, rank] {
      whorlComm_t comm = nullptr;
      EXPECT_EQ(whorlCommInitRank(&comm, 4, id, rank), whorlRemoteError);
      EXPECT_EQ(comm, nullptr);
      const std::string text = whorlGetLastError(nullptr);
      EXPECT_NE(text.find("rank 2"), std::string::npos) << text;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Communicators, SplitIntoATree) {
  ThreadWorld world(8);
  world.each([](int rank, whorlComm_t comm) -> std::string {
    whorlComm_t half = nullptr, quarter = nullptr, odd = nullptr;
    // The order is reversed inside each half.
    if (std::string f = failure(whorlCommSplit(comm, rank / 4, -rank, &half, nullptr), comm);
        !f.empty()) {
      return f;
    }
    int self = -1;
    whorlCommUserRank(half, &self);
    if (self != 3 - rank % 4) return "wrong order: " + std::to_string(self);
    if (std::string f = failure(whorlCommSplit(half, self / 2, 0, &quarter, nullptr), half);
        !f.empty()) {
      return f;
    }
    if (std::string f = failure(
            whorlCommSplit(comm, rank % 2 == 1 ? 0 : WHORL_SPLIT_NOCOLOR, 0, &odd, nullptr), comm);
        !f.empty()) {
      return f;
    }
    if ((odd != nullptr) != (rank % 2 == 1)) return "wrong color";
    for (int round = 0; round < 3; ++round) {
      if (std::string f = sum_of_ones(quarter, 2); !f.empty()) return f;
      if (odd != nullptr) {
        if (std::string f = sum_of_ones(odd, 4); !f.empty()) return f;
      }
      if (std::string f = sum_of_ones(half, 4); !f.empty()) return f;
      if (std::string f = sum_of_ones(comm, 8); !f.empty()) return f;
    }
    for (whorlComm_t child : {quarter, odd, half}) {
      if (whorlCommDestroy(child) != whorlSuccess) return "destroy";
    }
    return sum_of_ones(comm, 8); // the parent still works
  });
}

TEST(Communicators, ConcurrentlyFromSeveralThreads) {
  constexpr int kWorlds = 3, kRanks = 3;
  std::vector<std::unique_ptr<ThreadWorld>> worlds;
  for (int i = 0; i < kWorlds; ++i) worlds.push_back(std::make_unique<ThreadWorld>(kRanks));
  std::vector<std::thread> drivers;
  for (auto& world : worlds) {
    drivers.emplace_back([&] {
      world->each([&](int, whorlComm_t comm) -> std::string {
        for (int i = 0; i < 50; ++i) {
          if (std::string f = sum_of_ones(comm, kRanks, 3000); !f.empty()) return f;
        }
        return {};
      });
    });
  }
  for (std::thread& driver : drivers) driver.join();
}

TEST(Communicators, MismatchesAreNamedAndTouchNothing) {
  struct Mismatch {
    const char* word;
    whorlResult_t (*call)(int rank, float* in, float* out, whorlComm_t comm);
  };
  const Mismatch mismatches[] = {
      {"datatype (",
       [](int rank, float* in, float* out, whorlComm_t comm) {
         return whorlAllReduce(in, out, 16, rank == 1 ? whorlInt32 : whorlFloat32, whorlSum, comm,
                               nullptr);
       }},
      {"operator (",
       [](int rank, float* in, float* out, whorlComm_t comm) {
         return whorlAllReduce(in, out, 16, whorlFloat32, rank == 1 ? whorlMax : whorlSum, comm,
                               nullptr);
       }},
      {"count (",
       [](int rank, float* in, float* out, whorlComm_t comm) {
         return whorlAllReduce(in, out, rank == 1 ? 15 : 16, whorlFloat32, whorlSum, comm, nullptr);
       }},
      {"collective (",
       [](int rank, float* in, float* out, whorlComm_t comm) {
         return rank == 1 ? whorlAllGather(in, out, 16, whorlFloat32, comm, nullptr)
                          : whorlAllReduce(in, out, 16, whorlFloat32, whorlSum, comm, nullptr);
       }},
  };
  for (const Mismatch& mismatch : mismatches) {
    for (const int n : {2, 3}) {
      ThreadWorld world(n);
      world.each([&](int rank, whorlComm_t comm) -> std::string {
        std::vector<float> in(64, 1), out(64, -1);
        if (mismatch.call(rank, in.data(), out.data(), comm) == whorlSuccess) return "success";
        const std::string text = whorlGetLastError(comm);
        if (text.find(mismatch.word) == std::string::npos) return text;
        if (text.find("rank 1") == std::string::npos) return "does not name rank 1: " + text;
        // With two ranks, rank 0's input is wrong from the first message on.
        if (n == 2 && rank == 0 && out != std::vector<float>(64, -1))
          return "the output was touched";
        return whorlBarrier(comm, nullptr) == whorlSuccess ? "still alive" : "";
      });
    }
  }
}

TEST(Communicators, AnAbsentRankIsAnErrorAtTheDeadline) {
  const ScopedEnv env({{"WHORL_TIMEOUT_MS", "300"}});
  ThreadWorld world(3);
  world.each([](int rank, whorlComm_t comm) -> std::string {
    if (rank == 2) return {};
    if (whorlBarrier(comm, nullptr) != whorlRemoteError) return "no error";
    const std::string text = whorlGetLastError(comm);
    return text.find("rank 2") != std::string::npos ? "" : text;
  });
}

TEST(Communicators, DestroyedOnOneRankIsAnErrorOnAnother) {
  whorlComm_t comms[2]{};
  ASSERT_EQ(whorlCommInitAll(comms, 2, nullptr), whorlSuccess);
  EXPECT_EQ(whorlCommDestroy(comms[0]), whorlSuccess);
  const ScopedEnv env({{"WHORL_TIMEOUT_MS", "2000"}});
  EXPECT_EQ(whorlBarrier(comms[1], nullptr), whorlRemoteError);
  EXPECT_NE(std::string(whorlGetLastError(comms[1])).find("rank 0"), std::string::npos);
  EXPECT_EQ(whorlCommDestroy(comms[1]), whorlSuccess);
}

TEST(Communicators, ErrorsOnAStreamComeFromSynchronize) {
  ThreadWorld world(2);
  ASSERT_EQ(whorlCommSetTimeout(world.comm(0), 200), whorlSuccess);
  whorlStream_t stream = nullptr;
  ASSERT_EQ(whorlStreamCreate(&stream), whorlSuccess);
  EXPECT_EQ(whorlBarrier(world.comm(0), stream), whorlSuccess);
  EXPECT_EQ(whorlStreamSynchronize(stream), whorlRemoteError);
  whorlResult_t state = whorlSuccess;
  EXPECT_EQ(whorlCommGetAsyncError(world.comm(0), &state), whorlSuccess);
  EXPECT_EQ(state, whorlRemoteError);
  EXPECT_EQ(whorlStreamDestroy(stream), whorlRemoteError);
}

TEST(Communicators, AStreamMayBeDestroyedBeforeTheGroupEnds) {
  ThreadWorld world(1);
  whorlStream_t stream = nullptr;
  ASSERT_EQ(whorlStreamCreate(&stream), whorlSuccess);
  ASSERT_EQ(whorlGroupStart(), whorlSuccess);
  EXPECT_EQ(whorlBarrier(world.comm(0), stream), whorlSuccess);
  EXPECT_EQ(whorlStreamDestroy(stream), whorlSuccess);
  EXPECT_EQ(whorlGroupEnd(), whorlSuccess);
}

TEST(Communicators, ACommunicatorFreedInsideAGroupSpoilsIt) {
  whorlComm_t comm = nullptr;
  ASSERT_EQ(whorlCommInitAll(&comm, 1, nullptr), whorlSuccess);
  ASSERT_EQ(whorlGroupStart(), whorlSuccess);
  EXPECT_EQ(whorlBarrier(comm, nullptr), whorlSuccess);
  EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  EXPECT_EQ(whorlGroupEnd(), whorlInvalidUsage);
}

TEST(Communicators, TwoSplitsOfOneParentInAGroup) {
  ThreadWorld world(2);
  world.each([](int, whorlComm_t comm) -> std::string {
    whorlComm_t parts[2]{};
    whorlGroupStart();
    for (whorlComm_t& part : parts) whorlCommSplit(comm, 0, 0, &part, nullptr);
    if (std::string f = failure(whorlGroupEnd(), comm); !f.empty()) return f;
    for (whorlComm_t part : parts) {
      if (std::string f = sum_of_ones(part, 2); !f.empty()) return f;
      if (whorlCommDestroy(part) != whorlSuccess) return "destroy";
    }
    return {};
  });
}

TEST(Communicators, NonblockingCreationsDoNotHideTheCallsOfAGroup) {
  whorlUniqueId id;
  ASSERT_EQ(whorlGetUniqueId(&id), whorlSuccess);
  ThreadWorld world(1);
  whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
  config.blocking = 0;
  whorlComm_t fresh = nullptr;
  int one = 1, sum = 0;
  ASSERT_EQ(whorlGroupStart(), whorlSuccess);
  EXPECT_EQ(whorlCommInitRankConfig(&fresh, 2, id, 0, &config), whorlSuccess);
  EXPECT_EQ(whorlAllReduce(&one, &sum, 1, whorlInt32, whorlSum, world.comm(0), nullptr),
            whorlSuccess);
  EXPECT_EQ(whorlGroupEnd(), whorlInProgress);
  EXPECT_EQ(sum, 1);
  // Rank 1 never joins; the abort does not wait for it.
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(whorlCommAbort(fresh), whorlSuccess);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Communicators, ABadCreationSpoilsItsGroup) {
  whorlUniqueId id;
  ASSERT_EQ(whorlGetUniqueId(&id), whorlSuccess);
  whorlComm_t comms[2]{};
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(whorlGroupStart(), whorlSuccess);
  EXPECT_EQ(whorlCommInitRank(&comms[0], 2, id, 0), whorlSuccess);
  EXPECT_EQ(whorlCommInitRank(&comms[1], 2, id, 5), whorlInvalidArgument);
  EXPECT_EQ(whorlGroupEnd(), whorlInvalidArgument);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Communicators, EveryFinishedTransferStartsTheTimeoutAnew) {
  const ScopedEnv env({{"WHORL_TIMEOUT_MS", "600"}});
  ThreadWorld world(2);
  world.each([](int rank, whorlComm_t comm) -> std::string {
    int values[2] = {1, 2};
    if (rank == 0) {
      for (int& value : values) {
        std::this_thread::sleep_for(std::chrono::milliseconds(400));
        if (std::string f = failure(whorlSend(&value, 1, whorlInt32, 1, comm, nullptr), comm);
            !f.empty()) {
          return f;
        }
      }
      return {};
    }
    whorlGroupStart();
    for (int& value : values) whorlRecv(&value, 1, whorlInt32, 0, comm, nullptr);
    return failure(whorlGroupEnd(), comm);
  });
}

TEST(Communicators, TheLastErrorOfACommunicatorIncludesRefusedCalls) {
  ThreadWorld world(1);
  EXPECT_EQ(whorlBroadcast(nullptr, nullptr, 1, whorlInt8, 7, world.comm(0), nullptr),
            whorlInvalidArgument);
  EXPECT_NE(std::string(whorlGetLastError(world.comm(0))).find("root is 7"), std::string::npos);
}

} // namespace
} // namespace whorl::test
