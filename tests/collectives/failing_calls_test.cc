// Tests that any system call may fail while communicators are made, used, split and destroyed: all
// ranks then have right results, or an error: none hangs, crashes or is wrong.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/failing_system.h"
#include "tests/support/process_world.h"
#include "tests/support/shared_array.h"

namespace whorl::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRanks = 2;
/// Deadline of ranks. Where a connection is lost before the other rank knows whose it was, or is
/// refused because the other rank has all that it waits for, they have an error only then.
constexpr std::chrono::milliseconds kTimeout{500};
/// Longest time that a rank may take: each round of a set-up has its own deadline, and the rank
/// that waits for an answer of the other adds 2 s.
constexpr auto kLimit = 3 * kTimeout + std::chrono::seconds(3);

/// Makes the unique id of rank 0 known to all. Returns the error of its creation on that rank, and
/// "none" on the others.
std::string share_id(RankContext& context, whorlUniqueId& id) {
  struct Shared {
    whorlUniqueId id;
    bool made;
  } mine{};
  std::string failed = "none";
  if (context.rank == 0) {
    failed = failure(whorlGetUniqueId(&mine.id));
    mine.made = failed.empty();
  }
  const auto all = context.allgather(std::as_bytes(std::span(&mine, 1)));
  std::memcpy(&mine, all[0].data(), sizeof mine);
  id = mine.id;
  return mine.made ? "" : failed;
}

/// Adds up numbers on all ranks of a communicator. Returns the error, or "".
std::string add_up(whorlComm_t comm, int nranks) {
  std::vector<float> data(3000, 1);
  const std::string failed = failure(
      whorlAllReduce(data.data(), data.data(), data.size(), whorlFloat32, whorlSum, comm, nullptr),
      comm);
  if (failed.empty()) {
    EXPECT_EQ(data, std::vector<float>(data.size(), static_cast<float>(nranks)));
  }
  return failed;
}

/// Makes and uses communicators. Returns the first error, or "".
std::string work(RankContext& context) {
  whorlUniqueId id{};
  if (std::string failed = share_id(context, id); !failed.empty()) return failed;
  whorlComm_t comm = nullptr, part = nullptr;
  std::string failed = failure(whorlCommInitRank(&comm, context.nranks, id, context.rank));
  if (failed.empty()) failed = add_up(comm, context.nranks);
  if (failed.empty()) failed = failure(whorlCommSplit(comm, 0, 0, &part, nullptr), comm);
  if (failed.empty()) failed = add_up(part, context.nranks);
  if (part != nullptr) {
    EXPECT_EQ(whorlCommAbort(part), whorlSuccess);
  }
  if (comm != nullptr) {
    const bool good = failed.empty();
    EXPECT_EQ(good ? whorlCommDestroy(comm) : whorlCommAbort(comm), whorlSuccess);
  }
  return failed;
}

/// Report of a rank.
struct Told {
  std::array<char, 32> call{}; ///< name of the call that has failed there
  bool late = false;           ///< whether the error speaks of time, where there is another reason
};

/// Outcome of a run in which a call has failed.
struct Outcome {
  std::string call;  ///< name of the call; empty if there are fewer calls
  bool late = false; ///< whether an error speaks of time, where there is another reason
};

/// Connection of the ranks.
struct Way {
  const char* name;
  const char* transport;
  bool encrypts = false;

  void choose() const {
    setenv("WHORL_TRANSPORTS", transport, 1);
    setenv("WHORL_ENCRYPT", encrypts ? "1" : "0", 1);
  }
};

/// Lets call number `number` of rank `victim` fail with `error`.
Outcome run_with_failure(const Way& way, int victim, int error, long number) {
  SharedArray<Told> told(kRanks);
  const auto outcomes = run_ranks(kRanks, Mode::kProcesses, [&](RankContext& context) {
    way.choose();
    setenv("WHORL_TIMEOUT_MS", std::to_string(kTimeout.count()).c_str(), 1);
    setenv("WHORL_LOG", "off", 1);
    // Never freed: a thread of the rendezvous goes on until the process ends.
    auto& system = *new FailingSystem(context.rank == victim ? number : 0, error);
    new ScopedSystem(&system);
    const auto start = Clock::now();
    const std::string failed = work(context);
    EXPECT_LT(Clock::now() - start, kLimit) << failed;
    Told& mine = told[static_cast<std::size_t>(context.rank)];
    system.failed().copy(mine.call.data(), mine.call.size() - 1);
    if (failed.empty() || failed == "none") return;
    EXPECT_GT(failed.size(), 60U) << failed;
    EXPECT_EQ(failed.find('\n'), std::string::npos) << failed;
    // The root is not to blame for a want of this process.
    EXPECT_EQ(failed.find("hung up (Cannot allocate memory)"), std::string::npos) << failed;
    // A rank that cannot send what it has to contribute is not waited for.
    mine.late = failed.find("did not contribute") != std::string::npos;
    if (system.failed() == "socket" && error == EMFILE) {
      mine.late |= failed.find(std::strerror(error)) == std::string::npos;
    }
  });
  const std::string call = told[static_cast<std::size_t>(victim)].call.data();
  EXPECT_EQ(failures_of(outcomes), "") << way.name << ", rank " << victim << ", call " << number
                                       << ": " << call << " fails with " << std::strerror(error);
  return {call, told[0].late || told[1].late};
}

class FailingCalls : public ::testing::TestWithParam<Way> {};

TEST_P(FailingCalls, GiveErrorsOrNone) {
  constexpr long kMax = 5000;
  for (const int error : {ENOMEM, EMFILE, ECONNRESET}) {
    for (int victim = 0; victim < kRanks; ++victim) {
      long number = 0;
      Outcome outcome;
      do {
        ++number;
        outcome = run_with_failure(GetParam(), victim, error, number);
        // A machine that stands still between the deadlines of two ranks looks the same, but hardly
        // twice.
        EXPECT_FALSE(outcome.late && run_with_failure(GetParam(), victim, error, number).late)
            << "rank " << victim << ", call " << number << ": " << outcome.call << " fails with "
            << std::strerror(error);
      } while (!outcome.call.empty() && number < kMax);
      EXPECT_GT(number, 3) << "hardly a call could fail";
      EXPECT_LT(number, kMax);
      fmt::print("{}: rank {} has {} calls that may fail with {}\n", GetParam().name, victim,
                 number - 1, std::strerror(error));
    }
  }
}

/// Signals interrupt calls; the seam repeats these.
TEST_P(FailingCalls, AreRepeatedWhereASignalInterrupts) {
  const auto outcomes = run_ranks(kRanks, Mode::kProcesses, [](RankContext& context) {
    GetParam().choose();
    struct sigaction action {};
    action.sa_handler = [](int) {}; // without SA_RESTART
    ASSERT_EQ(sigaction(SIGALRM, &action, nullptr), 0);
    constexpr itimerval kEvery{.it_interval = {.tv_sec = 0, .tv_usec = 300},
                               .it_value = {.tv_sec = 0, .tv_usec = 300}};
    for (int round = 0; round < 20; ++round) {
      ASSERT_EQ(setitimer(ITIMER_REAL, &kEvery, nullptr), 0);
      EXPECT_EQ(work(context), "");
    }
    constexpr itimerval kNever{};
    EXPECT_EQ(setitimer(ITIMER_REAL, &kNever, nullptr), 0);
  });
  EXPECT_EQ(failures_of(outcomes), "");
}

INSTANTIATE_TEST_SUITE_P(Over, FailingCalls,
                         ::testing::Values(Way{"shm", "shm"}, Way{"tcp", "tcp"},
                                           Way{"tcp_encrypted", "tcp", true}),
                         [](const auto& way) { return std::string(way.param.name); });

} // namespace
} // namespace whorl::test
