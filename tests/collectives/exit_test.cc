// Tests of a process that exits during calls of the library.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

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

TEST(Exit, MayComeDuringCreation) {
  for (int round = 0; round < 120; ++round) {
    std::fflush(nullptr); // or the child prints it, too
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) exit_during_creation(microseconds(round % 60 * 30));
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << "round " << round << ", signal " << WTERMSIG(status);
  }
}

} // namespace
} // namespace whorl::test
