// Tests of results that peers write directly into an output: in every kind of memory, and never
// after the call has failed.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/process_world.h"

namespace whorl::test {
namespace {

whorlResult_t sum(const int* in, int* out, std::size_t count, whorlComm_t comm) {
  return whorlAllReduce(in, out, count, whorlInt32, whorlSum, comm, nullptr);
}

/// Checks that no peer writes to a rank's output once the rank's aborted call has returned.
void abort_at_random() {
  constexpr std::size_t kCount = 1 << 20;
  std::mt19937 random(17);
  for (int round = 0; round < 20; ++round) {
    whorlComm_t comms[2] = {};
    ASSERT_EQ(failure(whorlCommInitAll(comms, 2, nullptr)), "");
    const auto reduce_until_failure = [&](int rank, std::vector<int>& out) {
      const std::vector<int> in(kCount, rank + 1);
      whorlResult_t result = whorlSuccess;
      while (result == whorlSuccess) result = sum(in.data(), out.data(), kCount, comms[rank]);
      return result;
    };
    std::vector<int> outs[2] = {std::vector<int>(kCount), std::vector<int>(kCount)};
    std::thread other([&] { EXPECT_NE(reduce_until_failure(1, outs[1]), whorlSuccess); });
    std::thread aborter([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(500 + random() % 5000));
      EXPECT_EQ(whorlCommAbort(comms[0]), whorlSuccess);
    });
    EXPECT_NE(reduce_until_failure(0, outs[0]), whorlSuccess);
    std::fill(outs[0].begin(), outs[0].end(), -7);
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    EXPECT_EQ(std::count(outs[0].begin(), outs[0].end(), -7), kCount) << "round " << round;
    other.join();
    aborter.join();
    EXPECT_EQ(whorlCommDestroy(comms[1]), whorlSuccess);
  }
}

TEST(Placement, NobodyWritesToTheOutputOfACallThatWasAborted) {
  // In a process of its own, so that this one can still fork.
  const auto outcomes = run_ranks(1, Mode::kProcesses, [](RankContext&) { abort_at_random(); });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST(Placement, NobodyWritesToTheOutputOfACallThatTimedOut) {
  constexpr std::size_t kCount = 200'000;
  const auto outcomes = run_ranks(2, Mode::kProcesses, [&](RankContext& context) {
    whorlComm_t comm = join(context, {{"WHORL_TIMEOUT_MS", "200"}});
    void* memory = nullptr;
    ASSERT_EQ(failure(whorlMemAlloc(&memory, kCount * sizeof(int))), "");
    const std::span<int> values(static_cast<int*>(memory), kCount);
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(failure(sum(values.data(), values.data(), kCount, comm), comm), "");
    }
    std::fill(values.begin(), values.end(), 1); // values that a late sum would change
    if (context.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_NE(sum(values.data(), values.data(), kCount, comm), whorlSuccess);
    std::fill(values.begin(), values.end(), -7);
    static_cast<void>(context.allgather({}));
    EXPECT_EQ(std::count(values.begin(), values.end(), -7), kCount);
    EXPECT_EQ(whorlMemFree(memory), whorlSuccess);
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

/// Buffers of one rank in plain, registered and whorl's own memory.
struct Memories {
  static constexpr std::size_t kRoom = std::size_t{1} << 20;
  explicit Memories(whorlComm_t comm) : comm_(comm), plain_(kRoom), registered_(kRoom) {
    EXPECT_EQ(failure(whorlMemAlloc(&own_, kRoom * sizeof(int))), "");
    EXPECT_EQ(failure(whorlCommRegister(comm, registered_.data(), kRoom * sizeof(int), &handle_)),
              "");
  }
  ~Memories() {
    EXPECT_EQ(whorlCommDeregister(comm_, handle_), whorlSuccess);
    EXPECT_EQ(whorlMemFree(own_), whorlSuccess);
  }
  Memories(const Memories&) = delete;
  Memories& operator=(const Memories&) = delete;
  int* any(std::mt19937& random) {
    int* const bases[] = {plain_.data(), registered_.data(), static_cast<int*>(own_)};
    return bases[random() % 3] + random() % 100;
  }

 private:
  whorlComm_t comm_;
  std::vector<int> plain_, registered_;
  void* own_ = nullptr;
  void* handle_ = nullptr;
};

/// Returns rank `rank`'s element `i` in call `call`.
int element(int call, int rank, std::size_t i) {
  return static_cast<int>(i * 7 + static_cast<std::size_t>(call * 31 + rank * 1009) % 9973);
}

void mix_memories(RankContext& context) {
  whorlComm_t comm = join(context, {{"WHORL_TIMEOUT_MS", "30000"}});
  const int n = context.nranks;
  {
    Memories inputs(comm), outputs(comm);
    std::mt19937 same(5), own(static_cast<unsigned>(context.rank) + 100);
    for (int call = 0; call < 120; ++call) {
      // The call is equal on all ranks; the positions of the buffers differ.
      const bool gathers = same() % 4 == 0;
      const bool in_place = !gathers && same() % 3 == 0;
      const std::size_t count = 1 + same() % (same() % 2 == 0 ? 5'000 : 250'000);
      int* const out = outputs.any(own);
      int* const in = in_place ? out : inputs.any(own);
      for (std::size_t i = 0; i < count; ++i) in[i] = element(call, context.rank, i);
      if (gathers) {
        ASSERT_EQ(failure(whorlAllGather(in, out, count, whorlInt32, comm, nullptr), comm), "");
        for (int r = 0; r < n; ++r) {
          for (std::size_t i = 0; i < count; ++i) {
            ASSERT_EQ(out[static_cast<std::size_t>(r) * count + i], element(call, r, i))
                << "call " << call << " block " << r << " element " << i << " of " << count;
          }
        }
        continue;
      }
      ASSERT_EQ(failure(sum(in, out, count, comm), comm), "");
      for (std::size_t i = 0; i < count; ++i) {
        int expected = 0;
        for (int r = 0; r < n; ++r) expected += element(call, r, i);
        ASSERT_EQ(out[i], expected) << "call " << call << " element " << i << " of " << count
                                    << (in_place ? " in place" : "");
      }
    }
  }
  EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
}

void run_mixed_memories(const char* algorithm) {
  const ScopedEnv env({{"WHORL_ALGO", algorithm}});
  EXPECT_EQ(failures_of(run_ranks(3, Mode::kProcesses, mix_memories)), "") << algorithm;
}
TEST(Placement, EveryRankChoosesItsMemoryForEveryCall) { run_mixed_memories(""); }
TEST(PlacementFull, EveryRankChoosesItsMemoryForEveryCall) {
  for (const char* const algorithm : {"twoshot", "ring", "halving_doubling"}) {
    run_mixed_memories(algorithm);
  }
}

} // namespace
} // namespace whorl::test
