// Tests of waiting for forked processes. The test defines kill() in place of the C library's, to
// see which processes get a signal.
#include "perf/common/forked.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

namespace {

std::vector<pid_t> signalled;

/// Starts a process that exits with `status`, or waits for a signal if that is negative.
pid_t start(int status) {
  const pid_t child = fork();
  if (child == 0 && status >= 0) _exit(status);
  while (child == 0) pause();
  return child;
}

/// Waits until a process has exited, without reaping it.
void await_exit(pid_t child) {
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
}

} // namespace

extern "C" int kill(pid_t process, int signal) noexcept {
  signalled.push_back(process);
  return static_cast<int>(syscall(SYS_kill, process, signal));
}

TEST(AwaitAll, ReturnsTrueOnceAllHaveSucceeded) {
  signalled.clear();
  EXPECT_TRUE(perf::await_all({start(0), start(0), start(0)}, true));
  EXPECT_EQ(signalled, std::vector<pid_t>());
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

TEST(AwaitAll, KillsOnlyThoseThatStillRunAfterAFailure) {
  signalled.clear();
  const pid_t good = start(0), running = start(-1);
  await_exit(good);
  const pid_t bad = start(3);
  EXPECT_FALSE(perf::await_all({good, running, bad}, true));
  EXPECT_EQ(signalled, std::vector<pid_t>{running});
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

TEST(AwaitAll, KillsAllWhereNotAllCouldBeStarted) {
  signalled.clear();
  const std::vector<pid_t> running{start(-1), start(-1)};
  EXPECT_FALSE(perf::await_all(running, false));
  EXPECT_EQ(signalled, running);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}
