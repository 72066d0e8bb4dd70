// Tests of whorlCommDestroy() with operations for which another rank comes late or never: the call
// gives up soon, every rank is told why, and a rank that is only a little late changes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "tests/support/process_world.h"

namespace whorl::test {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

/// Longest time of an end within 100 ms on a busy machine. The deadline of operations is 30 s.
constexpr std::chrono::seconds kBound{2};

/// Runs `body` on processes, with each transport.
void run(int nranks, const std::function<void(RankContext&, whorlComm_t)>& body) {
  with_each_transport([&](const char* transport) {
    const auto outcomes = run_ranks(nranks, Mode::kProcesses, [&](RankContext& context) {
      const whorlComm_t comm =
          join(context, {{"WHORL_TRANSPORTS", transport}, {"WHORL_LOG", "off"}});
      ASSERT_NE(comm, nullptr);
      body(context, comm);
    });
    EXPECT_EQ(failures_of(outcomes), "") << transport;
  });
}

/// Runs `body` in a process of its own, since one that has used the library makes no others.
void run_alone(const std::function<void()>& body) {
  const auto outcomes = run_ranks(1, Mode::kProcesses, [&](RankContext&) { body(); });
  EXPECT_EQ(failures_of(outcomes), "");
}

/// Stream with three sums over all ranks, each of one number.
class Sums {
 public:
  explicit Sums(whorlComm_t comm) {
    EXPECT_EQ(whorlStreamCreate(&stream_), whorlSuccess);
    for (int& one : data_) {
      EXPECT_EQ(failure(whorlAllReduce(&one, &one, 1, whorlInt32, whorlSum, comm, stream_), comm),
                "");
    }
  }
  ~Sums() { static_cast<void>(whorlStreamDestroy(stream_)); } // the error of wait() again
  Sums(const Sums&) = delete;
  Sums& operator=(const Sums&) = delete;

  whorlStream_t stream() const { return stream_; }
  /// Waits for the sums. Returns their error, or "".
  std::string wait() const { return failure(whorlStreamSynchronize(stream_)); }
  /// Checks the results, where each rank has contributed 1, 2 and 3.
  void expect_right(int nranks) const {
    EXPECT_THAT(data_, ::testing::ElementsAre(nranks, 2 * nranks, 3 * nranks));
  }

 private:
  whorlStream_t stream_ = nullptr;
  std::array<int, 3> data_{1, 2, 3};
};

/// Ends a communicator, within the bound, and returns the error, or "".
std::string end_soon(whorlResult_t (*function)(whorlComm_t), whorlComm_t comm) {
  const auto start = Clock::now();
  const std::string failed = failure(function(comm));
  EXPECT_LT(Clock::now() - start, kBound) << failed;
  return failed;
}

TEST(Destroy, GivesUpWhatAnAbsentRankKeepsQueued) {
  run(3, [](RankContext& context, whorlComm_t comm) {
    const auto reason =
        AllOf(HasSubstr("rank 0 ("),
              HasSubstr("destroyed its communicator while allreduce number 1 of 1 int32 (sum) was "
                        "queued and waited for rank 2 ("),
              HasSubstr("which had not come for 90 ms; 3 operations were given up. To wait for "
                        "that rank, call whorlCommFinalize() before whorlCommDestroy()"));
    if (context.rank == 0) { // rank 1 waits in its stream, rank 2 comes when this rank is gone
      const Sums sums(comm);
      const std::string failed = end_soon(whorlCommDestroy, comm);
      EXPECT_THAT(failed, AllOf(reason, HasSubstr("whorlCommDestroy: rank 0 (")));
      EXPECT_THAT(sums.wait(), reason);
      context.barrier();
      return;
    }
    if (context.rank == 2) context.barrier();
    {
      const Sums sums(comm);
      EXPECT_THAT(sums.wait(), reason);
    }
    if (context.rank == 1) context.barrier();
    EXPECT_EQ(end_soon(whorlCommDestroy, comm), "");
  });
}

TEST(Destroy, CompletesWhatARankThatIsALittleLateKeepsQueued) {
  const auto attempt = [](RankContext& context, whorlComm_t comm) {
    context.barrier();
    if (context.rank == 1) std::this_thread::sleep_for(milliseconds(50));
    const Sums sums(comm);
    std::string failed = end_soon(whorlCommDestroy, comm);
    failed += sums.wait();
    if (failed.empty()) sums.expect_right(context.nranks);
    return failed;
  };
  run(2, [&](RankContext& context, whorlComm_t comm) {
    // On a busy machine a rank may be late by more than it wants to be.
    constexpr int kAttempts = 10;
    std::string failed = attempt(context, comm);
    for (int i = 1; i < kAttempts; ++i) {
      const char mine = failed.empty() ? 1 : 0;
      const auto all = context.allgather(std::as_bytes(std::span(&mine, 1)));
      if (all[0][0] == std::byte{1} && all[1][0] == std::byte{1}) return;
      comm = join(context, {});
      ASSERT_NE(comm, nullptr);
      failed = attempt(context, comm);
    }
    EXPECT_EQ(failed, "");
  });
}

TEST(Destroy, WaitsAfterFinalize) {
  run(2, [](RankContext& context, whorlComm_t comm) {
    if (context.rank == 1) std::this_thread::sleep_for(milliseconds(300));
    const Sums sums(comm);
    EXPECT_EQ(failure(whorlCommFinalize(comm), comm), "");
    EXPECT_EQ(end_soon(whorlCommDestroy, comm), "");
    EXPECT_EQ(sums.wait(), "");
    sums.expect_right(context.nranks);
  });
}

TEST(Destroy, WaitsForACallbackBeforeTheOperations) {
  run(2, [](RankContext& context, whorlComm_t comm) {
    whorlStream_t first = nullptr;
    whorlEvent_t event = nullptr;
    ASSERT_EQ(whorlStreamCreate(&first), whorlSuccess);
    ASSERT_EQ(whorlEventCreate(&event), whorlSuccess);
    const auto pause = [](void*, whorlResult_t) { std::this_thread::sleep_for(milliseconds(300)); };
    ASSERT_EQ(whorlStreamAddCallback(first, pause, nullptr), whorlSuccess);
    ASSERT_EQ(whorlEventRecord(event, first), whorlSuccess);
    whorlStream_t stream = nullptr;
    ASSERT_EQ(whorlStreamCreate(&stream), whorlSuccess);
    ASSERT_EQ(whorlStreamWaitEvent(stream, event), whorlSuccess);
    int one = 1;
    ASSERT_EQ(failure(whorlAllReduce(&one, &one, 1, whorlInt32, whorlSum, comm, stream)), "");
    EXPECT_EQ(end_soon(whorlCommDestroy, comm), "");
    EXPECT_EQ(one, context.nranks);
    EXPECT_EQ(whorlEventDestroy(event), whorlSuccess);
    for (whorlStream_t each : {first, stream}) EXPECT_EQ(whorlStreamDestroy(each), whorlSuccess);
  });
}

TEST(Destroy, EndsACallOfAnotherThreadThatWaitsForAnAbsentRank) {
  run_alone([] {
    whorlComm_t comms[2]{};
    ASSERT_EQ(whorlCommInitAll(comms, 2, nullptr), whorlSuccess);
    std::string failed;
    std::thread waiting([&] { failed = failure(whorlBarrier(comms[0], nullptr)); });
    std::this_thread::sleep_for(milliseconds(20)); // if it begins later it is refused
    const std::string given_up = end_soon(whorlCommDestroy, comms[0]);
    waiting.join();
    if (!given_up.empty()) {
      EXPECT_THAT(given_up,
                  HasSubstr("destroyed its communicator while barrier number 1 waited for "
                            "rank 1 ("));
      EXPECT_THAT(given_up, HasSubstr("1 operation was given up"));
      EXPECT_THAT(failed, HasSubstr("destroyed its communicator while barrier number 1"));
    }
    EXPECT_NE(failed, "");
    EXPECT_EQ(end_soon(whorlCommDestroy, comms[1]), "");
  });
}

TEST(Abort, DoesNotWaitForOtherCommunicatorsOfTheStream) {
  run_alone([] {
    whorlComm_t blocked[2]{}, comms[2]{};
    ASSERT_EQ(whorlCommInitAll(blocked, 2, nullptr), whorlSuccess);
    ASSERT_EQ(whorlCommInitAll(comms, 2, nullptr), whorlSuccess);
    {
      const Sums sums(blocked[0]); // rank 1 never comes
      int one = 1;
      ASSERT_EQ(whorlAllReduce(&one, &one, 1, whorlInt32, whorlSum, comms[0], sums.stream()),
                whorlSuccess);
      EXPECT_EQ(end_soon(whorlCommAbort, comms[0]), "");
      EXPECT_EQ(one, 1);
      EXPECT_THAT(end_soon(whorlCommDestroy, blocked[0]), HasSubstr("3 operations were given up"));
      EXPECT_THAT(sums.wait(), HasSubstr("destroyed its communicator while allreduce number 1"));
    }
    for (whorlComm_t comm : {blocked[1], comms[1]}) EXPECT_EQ(whorlCommAbort(comm), whorlSuccess);
  });
}

} // namespace
} // namespace whorl::test
