// Tests of ending a communicator that other threads use or query.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/thread_world.h"

namespace whorl::test {
namespace {

std::uint64_t plan_bytes(whorlComm_t comm) {
  std::uint64_t bytes = 0;
  EXPECT_EQ(whorlCommMemStats(comm, whorlStatHostMemPlans, &bytes), whorlSuccess);
  return bytes;
}

/// Makes the first call on `comm` in another thread. Returns once the call has a plan.
template <class Call>
std::thread begin(whorlComm_t comm, Call&& call) {
  const std::uint64_t before = plan_bytes(comm);
  std::thread thread(std::forward<Call>(call));
  while (plan_bytes(comm) == before) std::this_thread::yield();
  return thread;
}

TEST(Abort, EndsACallOfAnotherThread) {
  ThreadWorld world(2);
  whorlUniqueId id;
  ASSERT_EQ(whorlGetUniqueId(&id), whorlSuccess);
  whorlComm_t comms[2]{};
  ASSERT_EQ(whorlGroupStart(), whorlSuccess);
  for (int rank = 0; rank < 2; ++rank) whorlCommInitRank(&comms[rank], 2, id, rank);
  ASSERT_EQ(failure(whorlGroupEnd()), "");

  std::atomic<whorlResult_t> result{whorlSuccess};
  std::thread waiting = begin(comms[0], [&] { result = whorlBarrier(comms[0], nullptr); });
  EXPECT_EQ(whorlCommAbort(comms[0]), whorlSuccess);
  waiting.join();
  EXPECT_EQ(result.load(), whorlRemoteError);
  // The other rank gets the error even though it has no call in progress.
  whorlResult_t state = whorlSuccess;
  EXPECT_EQ(whorlCommGetAsyncError(comms[1], &state), whorlSuccess);
  EXPECT_EQ(state, whorlRemoteError);
  EXPECT_EQ(whorlBarrier(comms[1], nullptr), whorlRemoteError);
  const std::string text = whorlGetLastError(comms[1]);
  EXPECT_NE(text.find("rank 0"), std::string::npos) << text;
  EXPECT_EQ(whorlCommAbort(comms[1]), whorlSuccess);
}

TEST(Abort, EndsAGroupOfAnotherThread) {
  whorlComm_t comms[2]{};
  ASSERT_EQ(whorlCommInitAll(comms, 2, nullptr), whorlSuccess);
  std::atomic<whorlResult_t> result{whorlSuccess};
  std::thread waiting = begin(comms[0], [&] {
    int in = 0, out = 0;
    whorlGroupStart();
    whorlRecv(&in, 1, whorlInt32, 1, comms[0], nullptr);
    whorlSend(&out, 1, whorlInt32, 1, comms[0], nullptr);
    result = whorlGroupEnd();
  });
  EXPECT_EQ(whorlCommAbort(comms[0]), whorlSuccess);
  waiting.join();
  EXPECT_EQ(result.load(), whorlRemoteError);
  EXPECT_EQ(whorlCommAbort(comms[1]), whorlSuccess);
}

/// Queries the communicator, as a program's watching thread does, until the communicator is gone.
void watch(whorlComm_t comm, std::atomic<int>& questions) {
  whorlResult_t state = whorlSuccess;
  while (whorlCommGetAsyncError(comm, &state) == whorlSuccess) {
    static_cast<void>(whorlGetLastError(comm));
    questions.fetch_add(1);
  }
}

TEST(Abort, MayComeWhileAnotherThreadAsksForTheState) {
  for (int round = 0; round < 200; ++round) {
    whorlComm_t comm = nullptr;
    ASSERT_EQ(whorlCommInitAll(&comm, 1, nullptr), whorlSuccess);
    std::atomic<int> questions{0};
    std::thread watching([&] { watch(comm, questions); });
    while (questions.load() < 1 + round % 7) std::this_thread::yield();
    EXPECT_EQ(round % 2 == 0 ? whorlCommAbort(comm) : whorlCommDestroy(comm), whorlSuccess);
    watching.join();
  }
}

using End = whorlResult_t (*)(whorlComm_t);

/// Calls that make a communicator out of another one, each for a thread of its own.
using Making = std::vector<std::function<void()>>;

whorlResult_t revoke(whorlComm_t comm) { return whorlCommRevoke(comm, WHORL_REVOKE_DEFAULT); }

/// Ends rank 0's communicator while other threads make a communicator out of it, for which some
/// rank does not come: they get an error long before the timeout.
void expect_end_of_making(
    End end,
    const std::function<Making(const whorlComm_t (&comms)[2], const whorlConfig_t&)>& prepare) {
  whorlComm_t comms[2]{};
  ASSERT_EQ(whorlCommInitAll(comms, 2, nullptr), whorlSuccess);
  whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
  config.timeoutMs = 60'000;
  const auto start = std::chrono::steady_clock::now();
  const Making calls = prepare(comms, config);
  std::atomic<std::size_t> begun{0};
  std::vector<std::thread> threads;
  for (const auto& call : calls) {
    threads.emplace_back([&] {
      ++begun;
      call();
    });
  }
  while (begun.load() < calls.size()) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(100)); // they wait for the absent rank
  EXPECT_EQ(end(comms[0]), whorlSuccess);
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  if (end == revoke) {
    EXPECT_EQ(whorlCommAbort(comms[0]), whorlSuccess);
  }
  EXPECT_EQ(whorlCommAbort(comms[1]), whorlSuccess);
}

TEST(Abort, EndsAShrinkOfAnotherThread) {
  for (const End end : {whorlCommAbort, whorlCommDestroy}) {
    for (const int flags : {WHORL_SHRINK_DEFAULT, WHORL_SHRINK_ABORT}) {
      expect_end_of_making(end, [&](const whorlComm_t(&comms)[2], const whorlConfig_t& config) {
        return Making{[comm = comms[0], flags, own = config]() mutable {
          whorlComm_t made = nullptr; // rank 1 never calls
          EXPECT_NE(whorlCommShrink(comm, nullptr, 0, &made, &own, flags), whorlSuccess);
          EXPECT_EQ(made, nullptr);
        }};
      });
    }
  }
}

TEST(Abort, EndsAGrowthOfAnotherThread) {
  for (const End end : {whorlCommAbort, whorlCommDestroy, revoke}) {
    expect_end_of_making(end, [](const whorlComm_t(&comms)[2], const whorlConfig_t& config) {
      whorlUniqueId id;
      EXPECT_EQ(whorlCommGetUniqueId(comms[0], &id), whorlSuccess);
      Making calls;
      for (int rank = 0; rank < 2; ++rank) {
        calls.emplace_back([comm = comms[rank], rank, id, own = config]() mutable {
          whorlComm_t made = nullptr; // rank 2 never joins
          EXPECT_NE(whorlCommGrow(comm, 3, rank == 0 ? &id : nullptr, -1, &made, &own),
                    whorlSuccess);
          EXPECT_EQ(made, nullptr);
        });
      }
      return calls;
    });
  }
}

TEST(Interrupt, CheckCanBeRestored) {
  int (*before)() = [] { return 1; };
  ASSERT_EQ(whorlGetInterruptCheck(&before), whorlSuccess);
  EXPECT_EQ(before, nullptr);
  int (*const check)() = [] { return 0; };
  ASSERT_EQ(whorlSetInterruptCheck(check), whorlSuccess);
  ASSERT_EQ(whorlGetInterruptCheck(&before), whorlSuccess);
  EXPECT_EQ(before, check);
  EXPECT_EQ(whorlGetInterruptCheck(nullptr), whorlInvalidArgument);
  EXPECT_EQ(whorlSetInterruptCheck(nullptr), whorlSuccess);
}

TEST(Interrupt, EndsTheWaitThatItCameIn) {
  static std::atomic<std::thread::id> interrupted;
  ASSERT_EQ(
      whorlSetInterruptCheck([] { return std::this_thread::get_id() == interrupted ? 1 : 0; }),
      whorlSuccess);
  for (int round = 0; round < 3; ++round) {
    whorlComm_t comms[2]{};
    ASSERT_EQ(whorlCommInitAll(comms, 2, nullptr), whorlSuccess);
    std::thread waiting = begin(comms[0], [&] {
      EXPECT_EQ(whorlBarrier(comms[0], nullptr), whorlInvalidUsage);
      const std::string text = whorlGetLastError(comms[0]);
      EXPECT_NE(text.find("interrupted"), std::string::npos) << text;
    });
    interrupted = waiting.get_id();
    waiting.join();
    interrupted = std::thread::id();
    // Messages that rank 0 sent before the interruption may suffice for the first barrier.
    if (whorlBarrier(comms[1], nullptr) == whorlSuccess) {
      EXPECT_NE(whorlBarrier(comms[1], nullptr), whorlSuccess);
    }
    const std::string text = whorlGetLastError(comms[1]);
    EXPECT_NE(text.find("rank 0"), std::string::npos) << text;
    for (whorlComm_t comm : comms) EXPECT_EQ(whorlCommAbort(comm), whorlSuccess);
  }
  EXPECT_EQ(whorlSetInterruptCheck(nullptr), whorlSuccess);
}

TEST(Interrupt, EndsACallThatWaitsForAnOperationOfAnotherThread) {
  static std::atomic<std::thread::id> interrupted;
  ASSERT_EQ(
      whorlSetInterruptCheck([] { return std::this_thread::get_id() == interrupted ? 1 : 0; }),
      whorlSuccess);
  whorlComm_t comms[2]{};
  ASSERT_EQ(whorlCommInitAll(comms, 2, nullptr), whorlSuccess);
  whorlStream_t stream = nullptr;
  ASSERT_EQ(whorlStreamCreate(&stream), whorlSuccess);
  std::vector<float> data(8);
  const auto queue_one = [&] { // rank 1 never calls
    return whorlAllReduce(data.data(), data.data(), 8, whorlFloat32, whorlSum, comms[0], stream);
  };
  ASSERT_EQ(queue_one(), whorlSuccess);
  std::this_thread::sleep_for(std::chrono::milliseconds(50)); // the progress thread begins it
  std::chrono::steady_clock::duration took{};
  std::thread waiting([&] {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(whorlBarrier(comms[0], nullptr), whorlInvalidUsage);
    took = std::chrono::steady_clock::now() - start;
  });
  interrupted = waiting.get_id();
  waiting.join();
  EXPECT_LT(took, std::chrono::seconds(10)); // the operation has 30 s
  EXPECT_EQ(whorlSetInterruptCheck(nullptr), whorlSuccess);
  for (whorlComm_t comm : comms) EXPECT_EQ(whorlCommAbort(comm), whorlSuccess);
  static_cast<void>(whorlStreamDestroy(stream)); // has the error of the operation
}

TEST(Abort, MayComeWhileAnotherThreadWaitsForTheCreation) {
  whorlUniqueId id;
  whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
  config.blocking = 0;
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(whorlGetUniqueId(&id), whorlSuccess);
    whorlComm_t comm = nullptr;
    ASSERT_EQ(whorlCommInitRankConfig(&comm, 2, id, 0, &config), whorlInProgress);
    std::atomic<int> questions{0};
    std::thread watching([&] { watch(comm, questions); });
    while (questions.load() == 0) std::this_thread::yield();
    EXPECT_EQ(whorlCommAbort(comm), whorlSuccess); // rank 1 never calls
    watching.join();
  }
}

} // namespace
} // namespace whorl::test
