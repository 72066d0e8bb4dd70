// Tests of the memory that communicators occupy: the figures of whorlCommMemStats(), and budgets.
#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <numeric>
#include <thread>
#include <vector>

#include "algorithms/algorithm.h"
#include "tests/support/process_world.h"

namespace whorl::test {
namespace {

std::uint64_t stat(whorlComm_t comm, whorlCommMemStat_t which) {
  std::uint64_t value = 0;
  EXPECT_EQ(failure(whorlCommMemStats(comm, which, &value), comm), "");
  return value;
}

/// Checks that the total is the sum of its parts, and that the messages' memory is within the
/// budget.
std::string check_sums(whorlComm_t comm) {
  const std::uint64_t parts = stat(comm, whorlStatHostMemFifos) +
                              stat(comm, whorlStatHostMemWorkspaces) +
                              stat(comm, whorlStatHostMemPlans) + stat(comm, whorlStatHostMemFixed);
  // Busy peers fill and empty the sockets between two queries, so the total may exceed the parts.
  const std::uint64_t total = stat(comm, whorlStatHostMemTotal);
  if (total < parts) return "the parts do not add up";
  if (stat(comm, whorlStatGpuMemTotal) != 0) return "device memory";
  const std::uint64_t budget = stat(comm, whorlStatHostMemBudget);
  const std::uint64_t limited =
      stat(comm, whorlStatHostMemFifos) + stat(comm, whorlStatHostMemWorkspaces);
  if (budget != 0 && limited > budget) {
    return "budget " + std::to_string(budget) + " and " + std::to_string(limited) + " in use";
  }
  return {};
}

/// Makes calls that use every pair, every workspace and a few algorithms.
std::string exercise(whorlComm_t comm, std::size_t count) {
  int ranks = 0, rank = 0;
  whorlCommCount(comm, &ranks);
  whorlCommUserRank(comm, &rank);
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<int> in(n * count), out(n * count);
  std::iota(in.begin(), in.end(), rank);
  const auto call = [&](whorlResult_t result) { return failure(result, comm); };
  std::string f;
  for (const std::size_t part : {std::size_t{1}, count}) {
    if (f.empty()) f = call(whorlAlltoAll(in.data(), out.data(), part, whorlInt32, comm, nullptr));
    for (std::size_t block = 0; f.empty() && block < n; ++block) {
      // Block `rank` of rank b holds b + rank·part, and so on.
      const int expected = static_cast<int>(block + static_cast<std::size_t>(rank) * part);
      if (out[block * part] != expected) f = "wrong result";
    }
    if (f.empty()) {
      f = call(whorlAllReduce(in.data(), out.data(), part, whorlInt32, whorlSum, comm, nullptr));
    }
    if (f.empty() && out[0] != ranks * (ranks - 1) / 2) f = "wrong sum";
    if (f.empty()) {
      f = call(
          whorlReduceScatter(in.data(), out.data(), part, whorlInt32, whorlMax, comm, nullptr));
    }
    if (f.empty()) {
      f = call(whorlGather(in.data(), out.data(), part, whorlInt32, 0, comm, nullptr));
    }
  }
  whorlGroupStart();
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    whorlSend(in.data(), count, whorlInt32, peer, comm, nullptr);
    whorlRecv(out.data() + static_cast<std::size_t>(peer) * count, count, whorlInt32, peer, comm,
              nullptr);
  }
  if (f.empty()) f = call(whorlGroupEnd());
  return f.empty() ? check_sums(comm) : f;
}

TEST(Memory, CountsMessagesWithoutACopy) {
  constexpr std::size_t kCount = 100'000;
  ThreadWorld world(2);
  std::vector<std::vector<float>> plain(2, std::vector<float>(2 * kCount, 1));
  const ScopedEnv copies({{"WHORL_ZERO_COPY", "0"}});
  ThreadWorld copying(2);
  for (ThreadWorld* const one : {&world, &copying}) {
    const bool counts = one == &world;
    one->each([&](int rank, whorlComm_t comm) -> std::string {
      EXPECT_EQ(stat(comm, whorlStatMessagesZeroCopy), 0U);
      float* const data = plain[static_cast<std::size_t>(rank)].data();
      const std::string failed = failure(
          whorlAllGather(data, data + kCount, kCount / 2, whorlFloat32, comm, nullptr), comm);
      EXPECT_EQ(stat(comm, whorlStatMessagesZeroCopy) > 0, counts);
      return failed;
    });
  }
}

TEST(Memory, FiguresAddUpAndGrowWithUse) {
  for (const char* const transport : {"inproc", "tcp"}) {
    const ScopedEnv env({{"WHORL_TRANSPORTS", transport}});
    ThreadWorld world(3);
    for (int rank = 0; rank < world.size(); ++rank) {
      EXPECT_EQ(check_sums(world.comm(rank)), "");
      EXPECT_EQ(stat(world.comm(rank), whorlStatHostMemFifos), 0U) << "nobody has sent";
      EXPECT_EQ(stat(world.comm(rank), whorlStatHostMemBudget), 0U);
      EXPECT_GT(stat(world.comm(rank), whorlStatHostMemFixed), 0U);
    }
    const auto used = [&] {
      std::vector<std::uint64_t> totals;
      for (int rank = 0; rank < world.size(); ++rank) {
        totals.push_back(stat(world.comm(rank), whorlStatHostMemFifos) +
                         stat(world.comm(rank), whorlStatHostMemPlans) +
                         stat(world.comm(rank), whorlStatHostMemWorkspaces));
      }
      return totals;
    };
    // The ranks' timing decides which slots are used first; in the end all of them are.
    constexpr int kEnough = 100, kSettled = 10;
    int unchanged = 0;
    for (int i = 0; i < kEnough && unchanged < kSettled; ++i) {
      const std::vector<std::uint64_t> before = used();
      world.each([](int, whorlComm_t comm) { return exercise(comm, 10000); });
      unchanged = used() == before ? unchanged + 1 : 0;
    }
    EXPECT_EQ(unchanged, kSettled) << "the same calls again and again need no more";
    for (int rank = 0; rank < world.size(); ++rank) {
      const auto parts = [&] {
        return stat(world.comm(rank), whorlStatHostMemFifos) +
               stat(world.comm(rank), whorlStatHostMemWorkspaces) +
               stat(world.comm(rank), whorlStatHostMemPlans) +
               stat(world.comm(rank), whorlStatHostMemSocketBuffers) +
               stat(world.comm(rank), whorlStatHostMemFixed);
      };
      // Nobody is at work, but acknowledgements may still be on their way to the sockets.
      bool equal = false;
      for (int attempt = 0; attempt < 1000 && !equal; ++attempt) {
        equal = stat(world.comm(rank), whorlStatHostMemTotal) == parts();
        if (!equal) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_TRUE(equal) << "the total is not the sum of its parts";
      EXPECT_GT(stat(world.comm(rank), whorlStatHostMemFifos), 0U);
      EXPECT_GT(stat(world.comm(rank), whorlStatHostMemPlans), 0U);
      EXPECT_GE(stat(world.comm(rank), whorlStatHostMemReserved),
                stat(world.comm(rank), whorlStatHostMemFifos));
    }
  }
}

TEST(Memory, PlansIncludeWhatRunsThem) {
  const ScopedEnv env({{"WHORL_ALGO", "allreduce:oneshot"}});
  ThreadWorld world(2);
  const std::uint64_t before = stat(world.comm(0), whorlStatHostMemPlans);
  world.each([](int, whorlComm_t comm) {
    float one = 1;
    return failure(whorlAllReduce(&one, &one, 1, whorlFloat32, whorlMax, comm, nullptr), comm);
  });
  const Schedule schedule =
      build_schedule(*find_algorithm(Collective::kAllReduce, "oneshot"), {.nranks = 2}, 0);
  // Operands of each step, endpoints and messages of each peer, and each lane's position take more
  // memory than the schedule.
  EXPECT_GT(stat(world.comm(0), whorlStatHostMemPlans) - before,
            2 * (sizeof schedule + schedule.memory_bytes()));
}

TEST(Memory, BadArguments) {
  ThreadWorld world(1);
  std::uint64_t value = 0;
  EXPECT_EQ(whorlCommMemStats(world.comm(0), whorlStatHostMemTotal, nullptr), whorlInvalidArgument);
  EXPECT_EQ(whorlCommMemStats(nullptr, whorlStatHostMemTotal, &value), whorlInvalidArgument);
  EXPECT_EQ(whorlCommMemStats(world.comm(0), static_cast<whorlCommMemStat_t>(7), &value),
            whorlInvalidArgument);
}

/// Returns the number in the text after `word`.
std::uint64_t number_after(const std::string& text, const std::string& word) {
  const auto at = text.find(word);
  EXPECT_NE(at, std::string::npos) << text;
  return at == std::string::npos ? 0 : std::stoull(text.substr(at + word.size()));
}

TEST(Memory, KindsOfPointers) {
  int on_stack = 0;
  void* heap = nullptr;
  ASSERT_EQ(whorlMemAlloc(&heap, 100), whorlSuccess);
  for (const void* const pointer :
       {static_cast<const void*>(nullptr), static_cast<const void*>(&on_stack),
        static_cast<const void*>(heap)}) {
    whorlMemoryKind_t kind = whorlMemoryDevice;
    int device = 7;
    EXPECT_EQ(failure(whorlPointerKind(pointer, &kind, &device)), "");
    EXPECT_EQ(kind, whorlMemoryHost);
    EXPECT_EQ(device, -1);
    EXPECT_EQ(whorlPointerKind(pointer, &kind, nullptr), whorlSuccess);
  }
  EXPECT_EQ(whorlPointerKind(heap, nullptr, nullptr), whorlInvalidArgument);
  EXPECT_STREQ(whorlGetLastError(nullptr), "whorlPointerKind: kind is NULL");
  EXPECT_EQ(whorlMemFree(heap), whorlSuccess);
}

void find_the_smallest_budget(std::initializer_list<int> numbers) {
  for (const char* const transport : {"inproc", "tcp"}) {
    for (const int ranks : numbers) {
      std::uint64_t least = 0;
      {
        const ScopedEnv env({{"WHORL_TRANSPORTS", transport}, {"WHORL_MEMORY_BUDGET", "1"}});
        least = number_after(creation_error(ranks), "a rank needs ");
        ASSERT_GT(least, 0U);
      }
      {
        const ScopedEnv env(
            {{"WHORL_TRANSPORTS", transport}, {"WHORL_MEMORY_BUDGET", std::to_string(least - 1)}});
        EXPECT_NE(creation_error(ranks), "") << transport << " " << ranks << " " << least;
      }
      for (const std::uint64_t budget : {least, least + 1, 2 * least, 5 * least}) {
        const ScopedEnv env(
            {{"WHORL_TRANSPORTS", transport}, {"WHORL_MEMORY_BUDGET", std::to_string(budget)}});
        ThreadWorld world(ranks);
        EXPECT_EQ(stat(world.comm(0), whorlStatHostMemBudget), budget);
        world.each([](int, whorlComm_t comm) { return exercise(comm, 20000); });
      }
    }
  }
}

TEST(Memory, TheSmallestBudgetWorksAndOneByteLessDoesNot) { find_the_smallest_budget({3}); }
TEST(MemoryFull, TheSmallestBudgetWorksAndOneByteLessDoesNot) { find_the_smallest_budget({2, 6}); }

TEST(Memory, AScaledInputTakesNoMemory) {
  const ScopedEnv env({{"WHORL_MEMORY_BUDGET", "1000000"}});
  ThreadWorld world(2);
  world.each([](int, whorlComm_t comm) -> std::string {
    float scalar = 2;
    whorlRedOp_t op;
    whorlRedOpCreatePreMulSum(&op, &scalar, whorlFloat32, whorlScalarHostImmediate, comm);
    std::vector<float> data(1 << 20, 1.0F);
    if (whorlAllReduce(data.data(), data.data(), 100, whorlFloat32, op, comm, nullptr) !=
        whorlSuccess) {
      return "a small one must do";
    }
    if (data[0] != 4.0F) return "wrong sum";
    std::string failed = failure(
        whorlAllReduce(data.data(), data.data(), data.size(), whorlFloat32, op, comm, nullptr),
        comm);
    if (!failed.empty()) return failed;
    return data[0] == 16.0F && data.back() == 4.0F ? std::string() : "wrong sum of a large one";
  });
}

TEST(Memory, RanksAgreeOnTheSmallestBudget) {
  const auto outcomes = run_ranks(3, Mode::kThreads, [](RankContext& context) {
    const whorlUniqueId id = shared_id(context);
    whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
    if (context.rank > 0) config.memoryBudget = 300000U * static_cast<unsigned>(context.rank);
    whorlComm_t comm = nullptr;
    ASSERT_EQ(failure(whorlCommInitRankConfig(&comm, 3, id, context.rank, &config)), "");
    EXPECT_EQ(stat(comm, whorlStatHostMemBudget), 300000U);
    EXPECT_EQ(exercise(comm, 30000), "");
    context.barrier();
    EXPECT_EQ(exercise(comm, 3), "");
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

} // namespace
} // namespace whorl::test
