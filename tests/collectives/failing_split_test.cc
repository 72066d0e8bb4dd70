// Tests of splits that fail on one rank: all ranks that wait for it get its reason soon, and the
// parent works as before.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <set>
#include <string>
#include <thread>

#include "tests/support/failing_system.h"
#include "tests/support/process_world.h"

namespace {

/// Number of allocations of this thread until one fails; 0: none does.
thread_local long until_failure = 0;

void* allocate(std::size_t bytes) {
  if (until_failure > 0 && --until_failure == 0) throw std::bad_alloc();
  void* const memory = std::malloc(bytes != 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

} // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace whorl::test {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 3;
/// Longest time until every rank knows; 200 ms on a machine with cores to spare. The deadline is
/// 30 s.
constexpr std::chrono::seconds kBound{3};

/// Communicator of all processes of a run, which is split again and again.
class Parent {
 public:
  Parent(RankContext& context, const char* transport) : context_(context) {
    environment_ = {{"WHORL_TRANSPORTS", transport}, {"WHORL_LOG", "off"}};
    comm_ = join(context_, environment_);
  }
  ~Parent() { EXPECT_EQ(whorlCommAbort(comm_), whorlSuccess); }
  Parent(const Parent&) = delete;
  Parent& operator=(const Parent&) = delete;

  RankContext& context() const { return context_; }
  whorlComm_t comm() const { return comm_; }

  /// Splits, and returns the error, or "".
  std::string split(int color = 0, whorlConfig_t* config = nullptr) {
    whorlComm_t part = nullptr;
    const auto start = Clock::now();
    until_failure = failing_allocation;
    const whorlResult_t result = whorlCommSplit(comm_, color, 0, &part, config);
    allocation_has_failed = failing_allocation > 0 && until_failure == 0;
    until_failure = 0;
    const std::string failed = failure(result, comm_);
    EXPECT_LT(Clock::now() - start, kBound) << failed;
    if (part != nullptr) {
      EXPECT_EQ(whorlCommAbort(part), whorlSuccess);
    }
    return failed;
  }

  long failing_allocation = 0; ///< number of the allocation in a split that fails; 0: none does
  bool allocation_has_failed = false; ///< whether the last split had so many

  /// Adds up over all ranks. Returns the error, or "".
  std::string use() {
    int sum = 1;
    std::string failed =
        failure(whorlAllReduce(&sum, &sum, 1, whorlInt32, whorlSum, comm_, nullptr), comm_);
    if (failed.empty()) {
      EXPECT_EQ(sum, kRanks);
    }
    return failed;
  }

  /// Makes the communicator anew.
  void renew() {
    EXPECT_EQ(whorlCommAbort(comm_), whorlSuccess);
    comm_ = join(context_, environment_);
  }

  /// Returns the largest number that a rank has.
  int largest(int mine) const {
    const auto all = context_.allgather(std::as_bytes(std::span(&mine, 1)));
    int most = 0;
    for (const auto& bytes : all) {
      int one = 0;
      std::memcpy(&one, bytes.data(), sizeof one);
      most = std::max(most, one);
    }
    return most;
  }

 private:
  RankContext& context_;
  Environment environment_;
  whorlComm_t comm_ = nullptr;
};

/// Runs `body` on processes, with each transport.
void run(const std::function<void(Parent&)>& body) {
  with_each_transport([&](const char* transport) {
    const auto outcomes = run_ranks(kRanks, Mode::kProcesses, [&](RankContext& context) {
      Parent parent(context, transport);
      ASSERT_NE(parent.comm(), nullptr);
      body(parent);
      context.barrier(); // no rank ends the parent while another one uses it
    });
    EXPECT_EQ(failures_of(outcomes), "") << transport;
  });
}

/// Splits with one rank at fault, whose split `fail` lets fail (and returns whether it has), and
/// checks what all ranks get. Returns how many ranks have an error.
struct Outcome {
  bool injected = false; ///< whether something has failed
  bool parent_lives = true;
};
Outcome split_with_fault(Parent& parent, int victim,
                         const ::testing::Matcher<const std::string&>& reason,
                         const std::function<bool(Parent&, std::string&)>& faulty_split) {
  std::string failed;
  int injected = 0;
  if (parent.context().rank == victim) {
    injected = faulty_split(parent, failed) ? 1 : 0;
  } else {
    failed = parent.split();
  }
  Outcome outcome{.injected = parent.largest(injected) != 0};
  const bool some_failed = parent.largest(failed.empty() ? 0 : 1) != 0;
  if (some_failed) {
    EXPECT_TRUE(outcome.injected) << failed;
    EXPECT_NE(failed, "") << "another rank has an error";
    EXPECT_THAT(failed, reason);
    if (parent.context().rank != victim) {
      EXPECT_THAT(failed, HasSubstr(fmt::format("rank {}", victim)));
    }
  }
  const std::string used = parent.use();
  outcome.parent_lives = parent.largest(used.empty() ? 0 : 1) == 0;
  if (!outcome.parent_lives) {
    EXPECT_THAT(used, HasSubstr(fmt::format("rank {}", victim)));
    EXPECT_THAT(used, reason);
    parent.renew();
  }
  return outcome;
}

/// Makes a system that is never freed, since other threads may use it until they look again.
FailingSystem& make_failing_system() { return *new FailingSystem; }

TEST(FailingSplit, ByOptionsOfOneRank) {
  run([](Parent& parent) {
    for (int victim = 0; victim < kRanks; ++victim) {
      const auto outcome = split_with_fault(parent, victim, HasSubstr("config.maxCTAs is -5"),
                                            [](Parent& at_fault, std::string& failed) {
                                              whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
                                              config.maxCTAs = -5;
                                              failed = at_fault.split(0, &config);
                                              return true;
                                            });
      EXPECT_TRUE(outcome.parent_lives);
    }
    EXPECT_EQ(parent.split(), "");
  });
}

TEST(FailingSplit, ByTheColorOfOneRank) {
  run([](Parent& parent) {
    const auto outcome = split_with_fault(parent, 1, HasSubstr("color is -7 on rank 1"),
                                          [](Parent& at_fault, std::string& failed) {
                                            failed = at_fault.split(-7);
                                            return true;
                                          });
    EXPECT_TRUE(outcome.parent_lives);
    EXPECT_EQ(parent.split(), "");
  });
}

/// Leaves ranks of another color alone.
TEST(FailingSplit, IsNoMatterOfOtherColors) {
  run([](Parent& parent) {
    whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
    config.maxCTAs = -5;
    const int rank = parent.context().rank;
    const std::string failed = parent.split(rank == 0 ? 1 : 0, rank == 1 ? &config : nullptr);
    if (rank == 0) {
      EXPECT_EQ(failed, "");
    } else {
      EXPECT_THAT(failed, HasSubstr("config.maxCTAs is -5"));
      EXPECT_THAT(failed, HasSubstr(rank == 1 ? "rank 1" : "rank 0 could not join"));
    }
    EXPECT_EQ(parent.use(), "");
    EXPECT_EQ(parent.split(), "");
  });
}

/// Checks that whorlGetLastError() of a parent that works on has the last error, not that of the
/// split.
TEST(FailingSplit, IsNotTheReasonOfLaterErrors) {
  with_each_transport([](const char* transport) {
    const auto outcomes = run_ranks(kRanks, Mode::kProcesses, [&](RankContext& context) {
      Parent parent(context, transport);
      whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
      config.maxCTAs = -5;
      EXPECT_THAT(parent.split(0, context.rank == 1 ? &config : nullptr),
                  HasSubstr("config.maxCTAs is -5"));
      int sum = 0;
      EXPECT_THAT(
          failure(whorlAllReduce(nullptr, &sum, 1, whorlInt32, whorlSum, parent.comm(), nullptr),
                  parent.comm()),
          HasSubstr("sendbuff is NULL"));
      EXPECT_EQ(parent.use(), "");
      context.barrier();
      if (context.rank == 1) context.die();
      whorlResult_t state = whorlSuccess;
      while (state == whorlSuccess) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ASSERT_EQ(whorlCommGetAsyncError(parent.comm(), &state), whorlSuccess);
      }
      EXPECT_THAT(failure(state, parent.comm()), HasSubstr("rank 1 ("));
    });
    EXPECT_TRUE(outcomes[1].killed);
    EXPECT_EQ(outcomes[0].failures + outcomes[2].failures, "") << transport;
  });
}

/// Lets all system calls of one name fail on one rank: calls that are not tried again.
TEST(FailingSplit, BySystemCalls) {
  run([](Parent& parent) {
    int failures = 0;
    for (const char* const call : {"memfd_create", "mmap", "ftruncate", "fallocate", "socket",
                                   "bind", "listen", "epoll_create"}) {
      for (int victim = 0; victim < kRanks; ++victim) {
        const bool makes_one =
            std::set<std::string>{"memfd_create", "socket", "epoll_create"}.contains(call);
        const auto words = HasSubstr(makes_one ? "open files (ulimit -n)" : "open files");
        const auto outcome =
            split_with_fault(parent, victim, words, [&](Parent& at_fault, std::string& failed) {
              FailingSystem& system = make_failing_system();
              system.fail(call, EMFILE);
              const ScopedSystem scope(&system);
              failed = at_fault.split();
              return system.has_failed_by_name();
            });
        EXPECT_TRUE(outcome.parent_lives) << call;
        if (outcome.injected) ++failures;
      }
    }
    EXPECT_GT(failures, kRanks);
    EXPECT_EQ(parent.split(), "");
  });
}

/// Lets each allocation of the thread that splits fail on one rank, in steps.
void fail_allocations(int step) {
  run([step](Parent& parent) {
    for (int victim = 0; victim < kRanks; victim += 2) {
      int dead = 0, failures = 0;
      for (long number = 1;; number += step) {
        const auto outcome = split_with_fault(parent, victim, HasSubstr("out of memory"),
                                              [&](Parent& at_fault, std::string& failed) {
                                                at_fault.failing_allocation = number;
                                                failed = at_fault.split();
                                                at_fault.failing_allocation = 0;
                                                return at_fault.allocation_has_failed;
                                              });
        if (!outcome.injected) break;
        ++failures;
        if (!outcome.parent_lives) ++dead;
        ASSERT_FALSE(::testing::Test::HasFailure()) << "allocation " << number;
      }
      EXPECT_GT(failures, 2);
      EXPECT_LT(dead, failures) << "no split left the parent alone";
    }
  });
}

TEST(FailingSplit, ByAnAllocation) { fail_allocations(23); }
TEST(FailingSplitFull, ByAnAllocation) { fail_allocations(1); }

} // namespace
} // namespace whorl::test
