// Tests of a process that exits during calls of the library.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "whorl/whorl.h"

/// Tells the thread sanitizer that a thread may not have been joined at the exit: the tests leave
/// it so on purpose.
extern "C" [[gnu::visibility("default")]] const char*
__tsan_default_options(); // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __tsan_default_options() { return "report_thread_leaks=0"; }

namespace whorl::test {
namespace {

using std::chrono::microseconds;

/// Exits while the library's threads wait for absent ranks, at some point of their handshake.
[[noreturn]] void exit_during_creation(microseconds delay) {
  whorlUniqueId id;
  whorlConfig_t config = WHORL_CONFIG_INITIALIZER;
  config.blocking = 0;
  whorlComm_t comm = nullptr;
  const bool begun = whorlGetUniqueId(&id) == whorlSuccess &&
                     whorlCommInitRankConfig(&comm, 2, id, 0, &config) == whorlInProgress;
  std::this_thread::sleep_for(delay);
  std::exit(begun ? 0 : 1);
}

void exit_during_creations(int rounds) {
  for (int round = 0; round < rounds; ++round) {
    std::fflush(nullptr); // or the child prints it, too
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) exit_during_creation(microseconds(round % 60 * 30));
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << "round " << round << ", signal " << WTERMSIG(status);
  }
}

TEST(Exit, MayComeDuringCreation) { exit_during_creations(60); }
TEST(ExitFull, MayComeDuringCreation) { exit_during_creations(600); }

/// Way in which a rank ends without whorlCommDestroy().
enum class End : std::uint8_t { kExit, kAtOnce };

/// Pipe that carries the id from rank 0 to the others. So the parent of the ranks has no thread of
/// the library, whose locks a child would inherit; those of malloc() in a sanitizer are not
/// released.
struct Pipe {
  int ends[2];
};

whorlUniqueId make_id(const Pipe& pipe, int ranks) {
  whorlUniqueId id{};
  bool good = whorlGetUniqueId(&id) == whorlSuccess;
  for (int rank = 1; rank < ranks; ++rank) {
    good = good && write(pipe.ends[1], &id, sizeof id) == static_cast<ssize_t>(sizeof id);
  }
  if (!good) std::fprintf(stderr, "no id: %s\n", whorlGetLastError(nullptr));
  return id;
}

whorlUniqueId get_id(const Pipe& pipe) {
  close(pipe.ends[1]); // so that reading ends if rank 0 writes nothing
  whorlUniqueId id{};
  if (read(pipe.ends[0], &id, sizeof id) != static_cast<ssize_t>(sizeof id)) std::perror("read");
  return id;
}

/// Makes the calls of one rank, the last one of which others may complete later, and ends. Programs
/// that were written for NCCL never destroy.
[[noreturn]] void work_and_end(const Pipe& pipe, int ranks, int rank, End end, int round) {
  whorlComm_t comm = nullptr;
  const whorlUniqueId id = rank == 0 ? make_id(pipe, ranks) : get_id(pipe);
  int failed = whorlCommInitRank(&comm, ranks, id, rank) != whorlSuccess ? 1 : 0;
  constexpr std::size_t kCount = 100'000;
  std::vector<float> in(kCount, 1.0F), out(kCount);
  const auto call = [&](whorlResult_t result) { failed = result == whorlSuccess ? failed : 2; };
  for (const std::size_t count : {std::size_t{1}, kCount}) {
    if (failed != 0) break;
    call(whorlAllReduce(in.data(), out.data(), count, whorlFloat32, whorlSum, comm, nullptr));
  }
  // The last rank is late. The others have done their part, or wait for it.
  if (rank == ranks - 1) std::this_thread::sleep_for(microseconds(round % 5 * 5000));
  const std::size_t count = round % 2 == 0 ? 3 : kCount;
  if (failed == 0 && round % 3 != 0) {
    call(whorlReduce(in.data(), out.data(), count, whorlFloat32, whorlSum, 0, comm, nullptr));
  } else if (failed == 0) {
    call(whorlBroadcast(in.data(), out.data(), count, whorlFloat32, 1, comm, nullptr));
  }
  if (failed != 0) std::fprintf(stderr, "rank %d: %s\n", rank, whorlGetLastError(comm));
  if (end == End::kExit) std::exit(failed);
  _exit(failed);
}

/// Lets ranks in processes of their own work and end, many times. Returns the number of ranks that
/// failed.
int failures_of_last_calls(const char* transports, End end, int rounds) {
  constexpr int kRanks = 4;
  int failures = 0;
  setenv("WHORL_TRANSPORTS", transports, 1);
  for (int round = 0; round < rounds; ++round) {
    std::fflush(nullptr);
    Pipe pipe{};
    if (::pipe(pipe.ends) != 0) return -1;
    pid_t ranks[kRanks];
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks[rank] = fork();
      if (ranks[rank] == 0) work_and_end(pipe, kRanks, rank, end, round);
    }
    for (const int end_of_pipe : pipe.ends) close(end_of_pipe);
    for (const pid_t rank : ranks) {
      int status = -1;
      waitpid(rank, &status, 0);
      failures += status != 0 ? 1 : 0;
    }
  }
  unsetenv("WHORL_TRANSPORTS");
  return failures;
}

constexpr int kRounds = 15; ///< rounds with all pairs of delay, size and call in work_and_end()

void expect_last_calls_to_complete(End end, int rounds) {
  EXPECT_EQ(failures_of_last_calls("shm", end, rounds), 0);
  // The system resets a socket that is closed with unread data, and the peer may lose what it has
  // not read yet. Without an exit handler nothing prevents that: it was seen in one round of some
  // hundred, which fails for all other ranks.
  constexpr int kOneRound = 3;
  const int allowed = end == End::kExit ? 0 : rounds <= kRounds ? kOneRound : 2 * kOneRound;
  const int failures = failures_of_last_calls("tcp", end, rounds);
  EXPECT_GE(failures, 0);
  EXPECT_LE(failures, allowed);
}

TEST(Exit, WithoutDestroyLetsTheLastCallsOfOthersComplete) {
  expect_last_calls_to_complete(End::kExit, kRounds);
}
TEST(Exit, AtOnceLetsTheLastCallsOfOthersComplete) {
  expect_last_calls_to_complete(End::kAtOnce, kRounds);
}
TEST(ExitFull, WithoutDestroyLetsTheLastCallsOfOthersComplete) {
  expect_last_calls_to_complete(End::kExit, 4 * kRounds);
}
TEST(ExitFull, AtOnceLetsTheLastCallsOfOthersComplete) {
  expect_last_calls_to_complete(End::kAtOnce, 4 * kRounds);
}

} // namespace
} // namespace whorl::test
