// Tests of collectives among processes: over shared memory, TCP, and both; with whorl's own and
// registered memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/descriptors.h"
#include "tests/support/failing_system.h"
#include "tests/support/oracle.h"
#include "tests/support/process_world.h"

namespace whorl::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

/// Sends 30'000·r + j elements from rank r to rank j: by all-to-all-v, and to receives from any
/// rank.
void run_blocks_and_receives_from_any(const RankContext& context, whorlComm_t comm) {
  const auto count = [](int from, int to) { return static_cast<std::size_t>(30'000 * from + to); };
  std::vector<std::size_t> out_counts, in_counts;
  std::vector<int> out, in, expected;
  for (int j = 0; j < context.nranks; ++j) {
    out_counts.push_back(count(context.rank, j));
    in_counts.push_back(count(j, context.rank));
    out.insert(out.end(), out_counts.back(), 100 * context.rank + j);
    expected.insert(expected.end(), in_counts.back(), 100 * j + context.rank);
  }
  in.resize(expected.size());
  ASSERT_EQ(failure(whorlAlltoAllv(out.data(), out_counts.data(), nullptr, in.data(),
                                   in_counts.data(), nullptr, whorlInt32, comm, nullptr),
                    comm),
            "");
  EXPECT_EQ(in, expected);

  constexpr std::size_t kCount = 60'000;
  const int others = context.nranks - 1;
  std::vector<std::vector<int>> got(static_cast<std::size_t>(others), std::vector<int>(kCount));
  std::vector<int> sources(got.size(), -1);
  const std::vector<int> mine(kCount, context.rank);
  ASSERT_EQ(whorlGroupStart(), whorlSuccess);
  for (int i = 0; i < others; ++i) {
    const int to = (context.rank + 1 + i) % context.nranks;
    static_cast<void>(whorlSend(mine.data(), kCount, whorlInt32, to, comm, nullptr));
    const auto at = static_cast<std::size_t>(i);
    static_cast<void>(
        whorlRecvAny(got[at].data(), kCount, whorlInt32, &sources[at], comm, nullptr));
  }
  ASSERT_EQ(failure(whorlGroupEnd(), comm), "");
  std::vector<bool> seen(static_cast<std::size_t>(context.nranks));
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(sources[i] >= 0 && sources[i] < context.nranks) << sources[i];
    EXPECT_EQ(got[i], std::vector<int>(kCount, sources[i]));
    EXPECT_FALSE(seen[static_cast<std::size_t>(sources[i])]) << "rank " << sources[i] << " twice";
    seen[static_cast<std::size_t>(sources[i])] = true;
  }
  ASSERT_EQ(failure(whorlBarrier(comm, nullptr), comm), ""); // before any rank sends again
}

void run_all(const RankContext& context, whorlComm_t comm) {
  ASSERT_EQ(run_all_kinds(context.rank, context.nranks, comm, {0, 1, 1000, 70'001}), "");
  run_blocks_and_receives_from_any(context, comm);
  if (::testing::Test::HasFatalFailure()) return;
  EXPECT_EQ(pass_around(context.rank, context.nranks, comm), "");
  ASSERT_EQ(failure(whorlBarrier(comm, nullptr), comm), "");
}

void run_over(const char* transport, int nranks) {
  EXPECT_EQ(run_joined(nranks, Environment{{"WHORL_TRANSPORTS", transport}}, run_all), "")
      << nranks << " ranks";
}
TEST(Processes, OverSharedMemory) { run_over("shm", 3); }
TEST(ProcessesFull, OverSharedMemory) {
  run_over("shm", 2);
  run_over("shm", 6);
}
TEST(Processes, OverTcp) { run_over("tcp", 2); }
TEST(ProcessesFull, OverTcp) { run_over("tcp", 4); }

TEST(Processes, ReceivesFromAnyRankGoOnWhenOthersHaveLeft) {
  with_each_transport([](const char* transport) {
    const auto receive = [](RankContext& context, whorlComm_t comm) {
      if (context.rank == 2) ::usleep(100'000);
      int value = context.rank;
      if (context.rank != 0) {
        EXPECT_EQ(failure(whorlSend(&value, 1, whorlInt32, 0, comm, nullptr), comm), "");
        return;
      }
      int sources = 0;
      for (int i = 0; i < 2; ++i) {
        int source = -1;
        ASSERT_EQ(failure(whorlRecvAny(&value, 1, whorlInt32, &source, comm, nullptr), comm), "");
        EXPECT_EQ(source, value);
        sources += source;
      }
      EXPECT_EQ(sources, 1 + 2);
      EXPECT_EQ(whorlRecvAny(&value, 1, whorlInt32, &value, comm, nullptr), whorlRemoteError);
      EXPECT_NE(std::string(whorlGetLastError(comm)).find("has destroyed its communicator"),
                std::string::npos);
    };
    EXPECT_EQ(run_joined(3, Environment{{"WHORL_TRANSPORTS", transport}}, receive), "")
        << transport;
  });
}

void run_on_two_hosts(const char* algorithm) {
  EXPECT_EQ(run_joined(
                4,
                [&](int rank) {
                  return Environment{{"WHORL_HOST_ID", rank < 2 ? "first" : "second"},
                                     {"WHORL_ALGO", algorithm}};
                },
                run_all),
            "")
      << algorithm;
}
TEST(Processes, TwoHostsOfTwoRanks) { run_on_two_hosts(""); }
TEST(ProcessesFull, TwoHostsOfTwoRanks) {
  for (const char* const algorithm : {"hierarchical", "leaders", "ring"}) {
    run_on_two_hosts(algorithm);
  }
}

TEST(ProcessesFull, HostsOfInterleavedRanks) {
  EXPECT_EQ(run_joined(
                4,
                [](int rank) {
                  return Environment{{"WHORL_HOST_ID", std::to_string(rank % 2)}};
                },
                run_all),
            "");
}

TEST(Processes, CommunicatorsShareTheDescriptorsOfOtherProcesses) {
  EXPECT_EQ(
      run_joined(4, Environment{},
                 [](const RankContext& context, whorlComm_t comm) {
                   constexpr int kMore = 5;
                   const int before = open_descriptors();
                   std::vector<whorlComm_t> more(kMore);
                   for (whorlComm_t& one : more) {
                     ASSERT_EQ(failure(whorlCommSplit(comm, 0, context.rank, &one, nullptr)), "");
                   }
                   EXPECT_LE(open_descriptors() - before, kMore) << "the segments alone";
                   for (whorlComm_t one : more) EXPECT_EQ(whorlCommDestroy(one), whorlSuccess);
                   EXPECT_LE(open_descriptors(), before); // rank 0 has left its meetings meanwhile
                 }),
      "");
}

TEST(Processes, ADeathIsNoticedWherePidfdsAreForbidden) {
  FailingSystem system;
  const auto run = [&](RankContext& context) {
    const ScopedSystem scope(&system);
    system.fail("pidfd_open", EPERM);
    whorlComm_t comm = join(context, {});
    ASSERT_NE(comm, nullptr);
    if (context.rank == 2) ::raise(SIGKILL);
    const std::string text = failure(whorlBarrier(comm, nullptr), comm);
    EXPECT_NE(text.find("rank 2 "), std::string::npos) << text;
    EXPECT_NE(text.find("died or gave up"), std::string::npos) << text;
    whorlCommAbort(comm);
  };
  auto outcomes = run_ranks(4, Mode::kProcesses, run);
  EXPECT_TRUE(outcomes[2].killed);
  outcomes.erase(outcomes.begin() + 2);
  EXPECT_EQ(failures_of(outcomes), "");
}

/// Checks that rank 0 learns of the death of rank 1, of which a forked child lives on.
void expect_death_beside_a_child(const Environment& environment) {
  auto outcomes = run_ranks(2, Mode::kProcesses, [&](RankContext& context) {
    auto& child = *new (context.shared()) std::atomic<pid_t>; // zeroed
    whorlComm_t comm = join(context, environment);
    ASSERT_NE(comm, nullptr);
    if (context.rank == 1) {
      const pid_t forked = fork();
      if (forked == 0) {
        ::sleep(20);
        _exit(0);
      }
      child.store(forked);
    }
    context.barrier();
    if (context.rank == 1) ::raise(SIGKILL);
    const auto start = std::chrono::steady_clock::now();
    const std::string text = failure(whorlBarrier(comm, nullptr), comm);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    EXPECT_NE(text.find("rank 1 "), std::string::npos) << text;
    EXPECT_NE(text.find("died"), std::string::npos) << text;
    whorlCommAbort(comm);
    ASSERT_GT(child.load(), 0);
    EXPECT_EQ(::kill(child.load(), SIGKILL), 0);
  });
  EXPECT_TRUE(outcomes[1].killed);
  outcomes.pop_back();
  EXPECT_EQ(failures_of(outcomes), "");
}
TEST(Processes, ADeathIsNoticedThoughAChildLivesOn) {
  expect_death_beside_a_child({{"WHORL_TRANSPORTS", "tcp"}});
  expect_death_beside_a_child({{"WHORL_TRANSPORTS", "tcp"}, {"WHORL_ENCRYPT", "1"}});
  FailingSystem system;
  const ScopedSystem scope(&system);
  system.fail("pidfd_open", EPERM);
  expect_death_beside_a_child({});
}

TEST(Processes, Split) {
  EXPECT_EQ(
      run_joined(
          4, Environment{},
          [](const RankContext& context, whorlComm_t comm) {
            whorlComm_t half = nullptr;
            ASSERT_EQ(failure(whorlCommSplit(comm, context.rank % 2, 0, &half, nullptr)), "");
            int one = 1, sum = 0;
            ASSERT_EQ(
                failure(whorlAllReduce(&one, &sum, 1, whorlInt32, whorlSum, half, nullptr), half),
                "");
            EXPECT_EQ(sum, 2);
            EXPECT_EQ(whorlCommDestroy(half), whorlSuccess);
          }),
      "");
}

/// Sums a vector that lies in `memory`.
void sum_in(void* memory, std::size_t count, const RankContext& context, whorlComm_t comm) {
  auto* const values = static_cast<int*>(memory);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<int>(i) + context.rank;
    ASSERT_EQ(
        failure(whorlAllReduce(values, values, count, whorlInt32, whorlSum, comm, nullptr), comm),
        "");
    const int ranks = context.nranks * (context.nranks - 1) / 2;
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(values[i], static_cast<int>(i) * context.nranks + ranks) << i;
    }
  }
}

void run_on_own_and_registered_memory(const char* algorithm) {
  EXPECT_EQ(run_joined(3, Environment{{"WHORL_ALGO", algorithm}},
                       [](const RankContext& context, whorlComm_t comm) {
                         constexpr std::size_t kCount = 100'000;
                         void* own = nullptr;
                         ASSERT_EQ(failure(whorlMemAlloc(&own, kCount * sizeof(int))), "");
                         sum_in(own, kCount, context, comm);
                         EXPECT_EQ(whorlMemFree(own), whorlSuccess);

                         std::vector<int> plain(kCount);
                         void* handle = nullptr;
                         ASSERT_EQ(failure(whorlCommRegister(comm, plain.data(),
                                                             kCount * sizeof(int), &handle)),
                                   "");
                         EXPECT_NE(handle, nullptr);
                         sum_in(plain.data(), kCount, context, comm);
                         const std::vector<int> before = plain;
                         EXPECT_EQ(failure(whorlCommDeregister(comm, handle)), "");
                         EXPECT_EQ(plain, before);
                       }),
            "")
      << algorithm;
}
TEST(Processes, OwnAndRegisteredMemory) { run_on_own_and_registered_memory("twoshot"); }
TEST(ProcessesFull, OwnAndRegisteredMemoryWithEveryAlgorithm) {
  for (const char* const algorithm : {"oneshot", "ring", "tree", "halving_doubling"}) {
    run_on_own_and_registered_memory(algorithm);
  }
}

TEST(Processes, ARankThatIsAbsentIsNamedAtTheDeadline) {
  EXPECT_EQ(run_joined(3, Environment{{"WHORL_TIMEOUT_MS", "500"}},
                       [](RankContext& context, whorlComm_t comm) {
                         if (context.rank != 2) {
                           EXPECT_EQ(whorlBarrier(comm, nullptr), whorlRemoteError);
                           const std::string text = whorlGetLastError(comm);
                           EXPECT_NE(text.find("rank 2"), std::string::npos) << text;
                         }
                         context.barrier();
                       }),
            "");
}

TEST(Processes, AForkedChildIsRefused) {
  EXPECT_EQ(run_joined(2, Environment{},
                       [](const RankContext&, whorlComm_t comm) {
                         const pid_t child = fork();
                         if (child == 0) {
                           const bool refused = whorlBarrier(comm, nullptr) == whorlInvalidUsage;
                           _exit(refused ? 0 : 1);
                         }
                         int status = 0;
                         ASSERT_EQ(waitpid(child, &status, 0), child);
                         EXPECT_EQ(status, 0);
                         EXPECT_EQ(failure(whorlBarrier(comm, nullptr), comm), "");
                       }),
            "");
}

TEST(Processes, SayWhatToDoWhereAHeapCannotBeMapped) {
  FailingSystem system;
  const auto outcomes = run_ranks(2, Mode::kProcesses, [&](RankContext& context) {
    const ScopedSystem scope(&system);
    whorlComm_t comm = join(context, {{"WHORL_TRANSPORTS", "shm"}});
    constexpr std::size_t kBytes = 1 << 20;
    void* memory = nullptr;
    ASSERT_EQ(failure(whorlMemAlloc(&memory, kBytes)), "");
    if (context.rank == 1) system.fail("mmap", ENOMEM);
    EXPECT_NE(whorlBroadcast(memory, memory, kBytes, whorlUint8, 0, comm, nullptr), whorlSuccess);
    EXPECT_THAT(whorlGetLastError(comm),
                AllOf(HasSubstr("rank 1 cannot map"), HasSubstr("of the heap of rank 0"),
                      HasSubstr("(ulimit -v), or set WHORL_ZERO_COPY=0 on all ranks")));
    EXPECT_EQ(whorlCommAbort(comm), whorlSuccess);
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

/// Scope in which this process cannot start a thread: no address space has room for its stack.
class NoThreads {
 public:
  NoThreads() {
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    pthread_attr_t attributes;
    EXPECT_EQ(pthread_getattr_default_np(&attributes), 0);
    EXPECT_EQ(pthread_attr_setstacksize(&attributes, std::size_t{1} << 60), 0);
    EXPECT_EQ(pthread_setattr_default_np(&attributes), 0);
    pthread_attr_destroy(&attributes);
  }
  ~NoThreads() {
    EXPECT_EQ(pthread_setattr_default_np(&before_), 0);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

/// Lets rank 1 have no thread for its operations in a stream, one on each of so many communicators:
/// the other rank learns that at once, on each of them. Ranks have other numbers in the second one.
void expect_missing_thread_to_be_told(std::size_t communicators) {
  const auto outcomes = run_ranks(2, Mode::kProcesses, [&](RankContext& context) {
    std::vector<whorlComm_t> comms(communicators);
    comms[0] = join(context, {});
    for (std::size_t i = 1; i < communicators; ++i) {
      ASSERT_EQ(failure(whorlCommSplit(comms[0], 0, -context.rank, &comms[i], nullptr)), "");
    }
    std::vector<int> values(communicators);
    const auto add = [&](std::size_t i, whorlStream_t stream) {
      return whorlAllReduce(&values[i], &values[i], 1, whorlInt32, whorlSum, comms[i], stream);
    };
    constexpr const char* kReason = "cannot start the thread whorl-progress";
    const auto start = std::chrono::steady_clock::now();
    if (context.rank == 1) {
      whorlStream_t stream = nullptr;
      EXPECT_EQ(whorlStreamCreate(&stream), whorlSuccess);
      const NoThreads scope;
      whorlResult_t result = whorlSuccess;
      if (communicators == 1) {
        result = add(0, stream);
      } else {
        whorlGroupStart();
        for (std::size_t i = 0; i < communicators; ++i) add(i, stream);
        result = whorlGroupEnd();
      }
      EXPECT_EQ(result, whorlSystemError);
      EXPECT_THAT(whorlGetLastError(nullptr), HasSubstr(kReason));
      EXPECT_EQ(whorlStreamDestroy(stream), whorlSuccess);
    }
    for (std::size_t i = 0; i < communicators; ++i) {
      if (context.rank == 0) {
        const std::string text = failure(add(i, nullptr), comms[i]);
        const std::string named = i == 0 ? "rank 1" : "rank 0";
        EXPECT_THAT(text, ContainsRegex(named + " \\([^)]*\\): " + kReason));
      }
      whorlResult_t state = whorlSuccess;
      EXPECT_EQ(whorlCommGetAsyncError(comms[i], &state), whorlSuccess);
      EXPECT_NE(state, whorlSuccess);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start,
              std::chrono::seconds(10)); // the operations have 30 s
    for (const whorlComm_t comm : comms) EXPECT_EQ(whorlCommAbort(comm), whorlSuccess);
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST(Processes, EndTheCommunicatorWithoutAThread) { expect_missing_thread_to_be_told(1); }
TEST(Processes, EndTheCommunicatorsOfAGroupWithoutAThread) { expect_missing_thread_to_be_told(2); }

/// Lets rank 1 have no thread for the second creation of a group, of which another call may be
/// refused, or for one without a group that does not block.
void expect_missing_creator_to_be_told(bool grouped, bool refused) {
  const auto outcomes = run_ranks(2, Mode::kProcesses, [&](RankContext& context) {
    const std::array<whorlUniqueId, 2> ids{shared_id(context), shared_id(context)};
    std::array<whorlComm_t, 2> comms{};
    whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
    config.timeoutMs = 15'000;
    std::optional<NoThreads> scope;
    if (context.rank == 1) scope.emplace();
    const auto start = std::chrono::steady_clock::now();
    if (grouped) {
      EXPECT_EQ(whorlGroupStart(), whorlSuccess);
      for (std::size_t i = 0; i < 2; ++i) {
        whorlCommInitRankConfig(&comms[i], 2, ids[i], context.rank, &config);
      }
      if (refused && context.rank == 1) static_cast<void>(whorlBarrier(nullptr, nullptr));
      EXPECT_NE(whorlGroupEnd(), whorlSuccess);
    } else {
      config.blocking = context.rank == 0 ? 1 : 0;
      EXPECT_EQ(whorlCommInitRankConfig(&comms[1], 2, ids[1], context.rank, &config),
                whorlSystemError);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    EXPECT_THAT(whorlGetLastError(nullptr), HasSubstr(refused ? "whorlBarrier: comm is NULL"
                                                              : "start the thread whorl-create"));
    EXPECT_EQ(comms[1], nullptr);
    EXPECT_EQ(comms[0] != nullptr, grouped && !refused);
    context.barrier(); // the roots live in rank 0
    if (comms[0] != nullptr) {
      EXPECT_EQ(whorlCommAbort(comms[0]), whorlSuccess);
    }
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST(Processes, TellThatAGroupHasNoThreadForACreation) {
  expect_missing_creator_to_be_told(true, false);
  expect_missing_creator_to_be_told(true, true);
}
TEST(Processes, TellThatACreationHasNoThread) { expect_missing_creator_to_be_told(false, false); }

} // namespace
} // namespace whorl::test
