// Tests that a rank whose call of a creation is refused, because of its arguments or its options,
// ends the creation for all ranks at once, with its name and its reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/process_world.h"

namespace whorl::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

/// Far below the timeout of 30 s, and far above the promise for an idle machine.
constexpr std::chrono::seconds kSoon{5};
/// Longest time of the refused call itself, which may use up its time for telling the others.
constexpr std::chrono::seconds kTold{10};
/// Time after which a late rank comes.
constexpr std::chrono::milliseconds kLate{20};
constexpr int kRanks = 4;

/// Arguments of a creation.
struct Call {
  whorlComm_t* out;
  int nranks;
  int rank;
  whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
  int flags = 0; ///< of a shrink; of a growth: whether the rank passes an id of its own
};

/// Mistake of one rank, and words about it that all ranks get.
struct Mistake {
  std::function<void(Call&)> make;
  std::string words;
};
using Mistakes = std::vector<Mistake>;

const Mistakes kOfPlaces{
    {[](Call& call) { call.rank = kRanks; }, "rank is 4; it must be from 0 to 3"},
    {[](Call& call) { call.rank = -1; }, "rank is -1; it must be from 0 to 3"},
    {[](Call& call) { call.nranks = 0; }, "nranks is 0; it must be from 1 to 32768"},
};
const Mistakes kOfOptions{
    {[](Call& call) { call.out = nullptr; }, "comm is NULL"},
    {[](Call& call) { call.config.size = 8; }, "config was not initialised"},
    {[](Call& call) { call.config.magic = 0; }, "config was not initialised"},
    {[](Call& call) { call.config.cgaClusterSize = 9; }, "config.cgaClusterSize is 9"},
    {[](Call& call) { call.config.netName = "nosuch"; }, "config.netName is \"nosuch\""},
};
/// Fewer, because after each the others wait for a second for a rank that comes again.
const Mistakes kOfShrinks{
    {[](Call& call) { call.flags = 6; }, "shrinkFlags is 6"},
};
const Mistakes kOfGrowths{
    {[](Call& call) { call.out = nullptr; }, "comm is NULL"},
    {[](Call& call) { call.config.minCTAs = 0; }, "config.minCTAs is 0; it must be at least 1"},
    {[](Call& call) { call.nranks = 2; }, "larger than 3; they are -1 and 2"},
    {[](Call& call) { call.rank = 7; }, "they are 7 and 4"},
    {[](Call& call) { call.flags = 1; }, "of comm passed a uniqueId"},
};

/// Makes the call, and waits before it where the rank is to come late.
using Create =
    std::function<whorlResult_t(RankContext&, const Call&, const std::function<void()>&)>;

/// Makes every mistake on one of the ranks that make the call, once before the others come and once
/// after. `prepare` is called once by all.
void expect_all_to_learn(
    const std::vector<Mistakes>& mistakes, const Create& create, int ranks = kRanks,
    const std::vector<int>& culprits = {0, 2},
    const std::function<void(RankContext&)>& prepare = [](auto&) {}) {
  const auto expect = [&](RankContext& context, const Mistake& mistake, int culprit, bool first) {
    if (context.rank >= ranks) return;
    SCOPED_TRACE(mistake.words + " on rank " + std::to_string(culprit));
    whorlComm_t comm = nullptr;
    Call call{.out = &comm, .nranks = kRanks, .rank = context.rank};
    Call wrong{.out = &comm, .nranks = kRanks, .rank = culprit};
    mistake.make(wrong);
    const bool is_culprit = context.rank == culprit;
    if (is_culprit) call = wrong;
    Clock::time_point start;
    EXPECT_NE(create(context, call,
                     [&] {
                       if (is_culprit != first) std::this_thread::sleep_for(kLate);
                       start = Clock::now();
                     }),
              whorlSuccess);
    const std::string text = whorlGetLastError(nullptr);
    EXPECT_LT(Clock::now() - start, is_culprit ? kTold : kSoon) << text;
    EXPECT_THAT(text, HasSubstr(mistake.words));
    if (!is_culprit) {
      EXPECT_THAT(text, AnyOf(HasSubstr("rank " + std::to_string(wrong.rank)),
                              HasSubstr("rank " + std::to_string(culprit)),
                              HasSubstr("ranks 0, " + std::to_string(culprit))));
    }
    EXPECT_EQ(comm, nullptr);
  };
  const auto outcomes = run_ranks(kRanks, Mode::kProcesses, [&](RankContext& context) {
    prepare(context);
    for (const Mistakes& some : mistakes) {
      for (const Mistake& mistake : some) {
        for (const int culprit : culprits) {
          for (const bool first : {true, false}) {
            expect(context, mistake, culprit, first);
            context.barrier(); // the root lives in one of the ranks
          }
        }
      }
    }
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

TEST(RefusedCreation, ById) {
  expect_all_to_learn(
      {kOfPlaces, kOfOptions}, [](RankContext& context, Call call, const auto& wait) {
        const whorlUniqueId id = shared_id(context);
        wait();
        return whorlCommInitRankConfig(call.out, call.nranks, id, call.rank, &call.config);
      });
}

/// Returns the process of rank 0.
pid_t first_process(RankContext& context) {
  pid_t process = ::getpid();
  const auto all = context.allgather(std::as_bytes(std::span(&process, 1)));
  std::memcpy(&process, all[0].data(), sizeof process);
  return process;
}

/// The process with the root may not run for a while: on a busy machine, or where it is moved.
TEST(RefusedCreationFull, WhileTheRootDoesNotRun) {
  const auto outcomes = run_ranks(kRanks, Mode::kProcesses, [](RankContext& context) {
    const whorlUniqueId id = shared_id(context);
    const pid_t root = first_process(context);
    auto& state = *reinterpret_cast<std::atomic<int>*>(context.shared());
    const auto reach = [&](int wanted) {
      while (state.load() < wanted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    constexpr int kStopped = 1, kContinued = 2;
    if (context.rank == 1) {
      EXPECT_EQ(::kill(root, SIGSTOP), 0);
      state = kStopped;
      std::this_thread::sleep_for(std::chrono::seconds(2));
      EXPECT_EQ(::kill(root, SIGCONT), 0);
      state = kContinued;
    }
    reach(context.rank == 2 ? kStopped : kContinued);
    const auto start = Clock::now();
    whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
    if (context.rank == 2) config.blocking = 2;
    whorlComm_t comm = nullptr;
    EXPECT_EQ(whorlCommInitRankConfig(&comm, kRanks, id, context.rank, &config),
              whorlInvalidArgument);
    EXPECT_LT(Clock::now() - start, kSoon);
    EXPECT_THAT(whorlGetLastError(nullptr), HasSubstr("config.blocking is 2"));
    context.barrier(); // the root lives in rank 0
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

/// Returns a port that no other program has, on all ranks: rank 0 keeps it.
int own_port(RankContext& context) {
  sockaddr_in address{};
  if (context.rank == 0) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); // until the process ends
    socklen_t size = sizeof address;
    address.sin_family = AF_INET;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(socket, generic, size), 0);
    EXPECT_EQ(::getsockname(socket, generic, &size), 0);
  }
  const auto all = context.allgather(std::as_bytes(std::span(&address.sin_port, 1)));
  std::memcpy(&address.sin_port, all[0].data(), sizeof address.sin_port);
  return ntohs(address.sin_port);
}

TEST(RefusedCreation, ByAnAddress) {
  expect_all_to_learn({kOfOptions}, [](RankContext& context, Call call, const auto& wait) {
    const std::string address = "127.0.0.1:" + std::to_string(own_port(context));
    wait();
    return whorlCommInitAddress(call.out, call.nranks, address.c_str(), call.rank, &call.config);
  });
}

whorlComm_t parent = nullptr;
void join_parent(RankContext& context) { parent = join(context, {}); }

TEST(RefusedCreation, OfASplit) {
  expect_all_to_learn(
      {kOfOptions},
      [](RankContext&, Call call, const auto& wait) {
        wait();
        return whorlCommSplit(parent, 0, 0, call.out, &call.config);
      },
      kRanks, {0, 2}, join_parent);
}

TEST(RefusedCreationFull, OfAShrink) {
  expect_all_to_learn(
      {kOfShrinks},
      [](RankContext& context, Call call, const auto& wait) {
        const int excluded = kRanks - 1;
        // Rank 0 has heard by then, and waits for a second whether the others come again.
        if (context.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        wait();
        return whorlCommShrink(parent, &excluded, 1, call.out, &call.config, call.flags);
      },
      kRanks - 1, {0, 2}, join_parent);
}

/// Lets ranks 1, 2 and 3 of a communicator without rank 0 shrink without a list. Rank 2 makes
/// `mistake` with its call, or before it.
void expect_all_finders_to_learn(
    const std::string& words,
    const std::function<void(whorlComm_t comm, whorlConfig_t& config)>& mistake) {
  const auto outcomes = run_ranks(kRanks, Mode::kProcesses, [&](RankContext& context) {
    whorlComm_t comm = join(context, {}), rest = nullptr;
    ASSERT_NE(comm, nullptr);
    if (context.rank == 0) context.die();
    EXPECT_EQ(whorlBarrier(comm, nullptr), whorlRemoteError);
    whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
    if (context.rank == 2) mistake(comm, config);
    const auto start = Clock::now();
    EXPECT_NE(whorlCommShrink(comm, nullptr, 0, &rest, &config, WHORL_SHRINK_ABORT), whorlSuccess);
    // Ranks with lists of their own try again for four seconds; a late one takes twice as long.
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(20)) << whorlGetLastError(nullptr);
    EXPECT_EQ(rest, nullptr);
    EXPECT_THAT(whorlGetLastError(nullptr), HasSubstr(words));
    auto& ended = *reinterpret_cast<std::atomic<int>*>(context.shared());
    ++ended;
    while (ended.load() < kRanks - 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  for (const int rank : {1, 2, 3}) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].failures, "") << rank;
  }
}

TEST(RefusedCreationFull, OfAShrinkWithoutAList) {
  expect_all_finders_to_learn("config.blocking is 2",
                              [](auto, auto& config) { config.blocking = 2; });
}

TEST(RefusedCreationFull, OfAShrinkOnceFinalized) {
  expect_all_finders_to_learn("comm has been finalized",
                              [](auto comm, auto&) { whorlCommFinalize(comm); });
}

/// Ranks 0, 1 and 2 have a communicator, which rank 3 joins.
TEST(RefusedCreation, OfAGrowth) {
  expect_all_to_learn(
      {kOfGrowths},
      [](RankContext& context, Call call, const auto& wait) {
        const whorlUniqueId id = shared_id(context);
        wait();
        const bool joins = parent == nullptr;
        const bool passes = joins || context.rank == 0 || call.flags != 0;
        const int rank = joins || call.rank != context.rank ? call.rank : -1;
        return whorlCommGrow(parent, call.nranks, passes ? &id : nullptr, rank, call.out,
                             &call.config);
      },
      kRanks, {1, 2},
      [](RankContext& context) {
        const whorlUniqueId id = shared_id(context);
        if (context.rank < 3) {
          ASSERT_EQ(failure(whorlCommInitRank(&parent, 3, id, context.rank)), "");
        }
      });
}

/// A rank of the communicator revokes it before any has reached the root, in the rank that joins.
TEST(RefusedCreationFull, OfAGrowthThatIsRevokedWhileTheRootDoesNotRun) {
  const auto outcomes = run_ranks(3, Mode::kProcesses, [](RankContext& context) {
    const whorlUniqueId first = shared_id(context), second = shared_id(context);
    const pid_t root = first_process(context);
    auto& stopped = *reinterpret_cast<std::atomic<bool>*>(context.shared());
    const bool joins = context.rank == 0;
    whorlComm_t comm = nullptr, grown = nullptr;
    if (!joins) {
      ASSERT_EQ(failure(whorlCommInitRank(&comm, 2, first, context.rank - 1)), "");
    }
    context.barrier();
    std::thread revoking;
    if (context.rank == 1) {
      EXPECT_EQ(::kill(root, SIGSTOP), 0);
      stopped = true;
      revoking = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300)); // the others connect
        EXPECT_EQ(whorlCommRevoke(comm, WHORL_REVOKE_DEFAULT), whorlSuccess);
        std::this_thread::sleep_for(std::chrono::milliseconds(300)); // all hear of it
        EXPECT_EQ(::kill(root, SIGCONT), 0);
      });
    }
    while (!stopped.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
    config.timeoutMs = 15'000;
    const auto start = Clock::now();
    EXPECT_EQ(whorlCommGrow(comm, 3, context.rank == 2 ? nullptr : &second, joins ? 2 : -1, &grown,
                            &config),
              whorlRemoteError);
    EXPECT_LT(Clock::now() - start, kSoon);
    EXPECT_THAT(whorlGetLastError(nullptr),
                AllOf(HasSubstr("rank 0 "), HasSubstr("has called whorlCommRevoke")));
    if (revoking.joinable()) revoking.join();
    context.barrier(); // the root lives in rank 0
    if (!joins) {
      EXPECT_EQ(whorlCommAbort(comm), whorlSuccess);
    }
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

/// Store in the memory that the ranks of a run share, for one value.
struct SharedStore {
  static constexpr int kStores = 32;
  std::atomic<std::size_t> size; ///< 0: there is no value yet
  std::array<std::byte, 1024> value;

  static int set(void* self, const char*, const void* value, std::size_t size) {
    auto& store = *static_cast<SharedStore*>(self);
    if (size > store.value.size()) return 1;
    std::memcpy(store.value.data(), value, size);
    store.size = size;
    return 0;
  }
  static int get(void* self, const char*, void* value, std::size_t capacity, std::size_t* size,
                 int timeout_ms) {
    const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
    auto& store = *static_cast<SharedStore*>(self);
    while (store.size.load() == 0) {
      if (Clock::now() >= end) return 1;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    *size = store.size;
    if (*size > capacity) return 1;
    std::memcpy(value, store.value.data(), *size);
    return 0;
  }
};

TEST(RefusedCreationFull, ByAStore) {
  int next = 0;
  expect_all_to_learn({kOfOptions}, [&](RankContext& context, Call call, const auto& wait) {
    static_assert(SharedStore::kStores * sizeof(SharedStore) <= RankContext::kSharedBytes);
    auto* const stores = reinterpret_cast<SharedStore*>(context.shared());
    EXPECT_LT(next, SharedStore::kStores);
    const whorlStore_t store{.context = &stores[next++],
                             .prefix = nullptr,
                             .set = SharedStore::set,
                             .get = SharedStore::get};
    wait();
    return whorlCommInitStore(call.out, call.nranks, &store, call.rank, &call.config);
  });
}

TEST(RefusedCreationFull, ByTheEnvironment) {
  expect_all_to_learn({kOfOptions}, [](RankContext& context, Call call, const auto& wait) {
    const std::string port = std::to_string(own_port(context));
    setenv("WHORL_ADDRESS", ("127.0.0.1:" + port).c_str(), 1);
    setenv("WHORL_RANK", std::to_string(context.rank).c_str(), 1);
    setenv("WHORL_NRANKS", std::to_string(kRanks).c_str(), 1);
    wait();
    return whorlCommInitEnv(call.out, &call.config);
  });
}

TEST(RefusedCreationFull, BySeveralIds) {
  const Mistakes of_ids{{[](Call& call) { call.flags = 9; }, "nId is 9; there must be from 1 to"}};
  expect_all_to_learn(
      {kOfPlaces, kOfOptions, of_ids}, [](RankContext& context, Call call, const auto& wait) {
        whorlUniqueId id = shared_id(context);
        wait();
        return whorlCommInitRankScalable(call.out, call.nranks, call.rank,
                                         call.flags == 0 ? 1 : call.flags, &id, &call.config);
      });
}

/// Makes a creation as the only call of a group.
whorlResult_t in_a_group(const std::function<whorlResult_t()>& create) {
  EXPECT_EQ(whorlGroupStart(), whorlSuccess);
  static_cast<void>(create()); // the end of the group has an error of the call
  return whorlGroupEnd();
}

TEST(RefusedCreationFull, InAGroup) {
  expect_all_to_learn(
      {kOfPlaces, kOfOptions}, [](RankContext& context, Call call, const auto& wait) {
        const whorlUniqueId id = shared_id(context);
        wait();
        return in_a_group([&] {
          return whorlCommInitRankConfig(call.out, call.nranks, id, call.rank, &call.config);
        });
      });
}

/// Without the creation, which is right, the others would wait.
TEST(RefusedCreationFull, ByAnotherCallOfTheGroup) {
  const Mistakes of_another{{[](Call& call) { call.flags = 1; }, "whorlBarrier: comm is NULL"}};
  expect_all_to_learn({of_another}, [](RankContext& context, Call call, const auto& wait) {
    const whorlUniqueId id = shared_id(context);
    wait();
    return in_a_group([&] {
      if (call.flags == 1) static_cast<void>(whorlBarrier(nullptr, nullptr));
      return whorlCommInitRankConfig(call.out, call.nranks, id, call.rank, &call.config);
    });
  });
}

TEST(RefusedCreationFull, OfASplitInAGroup) {
  expect_all_to_learn(
      {kOfOptions},
      [](RankContext&, Call call, const auto& wait) {
        wait();
        return in_a_group([&] { return whorlCommSplit(parent, 0, 0, call.out, &call.config); });
      },
      kRanks, {0, 2}, join_parent);
}

TEST(RefusedCreationFull, WithoutBlocking) {
  expect_all_to_learn(
      {kOfPlaces, kOfOptions}, [](RankContext& context, Call call, const auto& wait) {
        const whorlUniqueId id = shared_id(context);
        call.config.blocking = 0;
        wait();
        whorlResult_t result =
            whorlCommInitRankConfig(call.out, call.nranks, id, call.rank, &call.config);
        if (result != whorlInProgress) return result;
        const whorlComm_t comm = std::exchange(*call.out, nullptr);
        while (whorlCommGetAsyncError(comm, &result) == whorlSuccess && result == whorlInProgress) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        int count = 0;
        EXPECT_EQ(whorlCommCount(comm, &count), result); // with the error of the creation
        EXPECT_EQ(whorlCommAbort(comm), whorlSuccess);
        return result;
      });
}

/// Settings that rank 0 compares or decides on: the others hear the name of the rank with the odd
/// one out.
TEST(RefusedCreation, BySettingsThatDiffer) {
  const auto expect = [](const char* name, const char* value, const std::string& words,
                         int culprit = 2) {
    const auto outcomes = run_ranks(kRanks, Mode::kProcesses, [&](RankContext& context) {
      const whorlUniqueId id = shared_id(context);
      if (context.rank == culprit) setenv(name, value, 1);
      whorlComm_t comm = nullptr;
      const auto start = Clock::now();
      EXPECT_EQ(whorlCommInitRank(&comm, kRanks, id, context.rank), whorlInvalidUsage);
      EXPECT_LT(Clock::now() - start, kSoon);
      EXPECT_THAT(whorlGetLastError(nullptr), HasSubstr(words));
      if (context.rank != culprit) {
        EXPECT_THAT(whorlGetLastError(nullptr), HasSubstr("rank " + std::to_string(culprit) + " "));
      }
      context.barrier(); // the root lives in rank 0
    });
    EXPECT_EQ(failures_of(outcomes), "");
  };
  expect("WHORL_MEMORY_BUDGET", "1000", "a memory budget of 1000 bytes is too small");
  expect("WHORL_TRANSPORTS", "tcp", "that of rank 0 is \"inproc,shm");
  for (const int culprit : {0, 1}) { // rank 0's values count, but others are mistakes, too
    expect("WHORL_ALGO", "allreduce:nonsense", "WHORL_ALGO: there is no algorithm \"nonsense\"",
           culprit);
    expect("WHORL_DIMS", "3,5", "WHORL_DIMS=\"3,5\": the product of the sizes is too large",
           culprit);
  }
}

} // namespace
} // namespace whorl::test
