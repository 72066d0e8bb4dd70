#pragma once

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <vector>

// Clock and barrier of programs that fork their ranks and measure them; the ranks share memory that
// was mapped before.

namespace perf {

/// Returns the time in microseconds of a clock that is the same in all processes.
inline double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Barrier in shared memory. A waiting rank blocks, so that it takes no core from the others.
class Meeting {
 public:
  void open(int ranks) {
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&barrier_, &shared, static_cast<unsigned>(ranks));
    pthread_barrierattr_destroy(&shared);
  }
  void meet() { pthread_barrier_wait(&barrier_); }

 private:
  pthread_barrier_t barrier_;
};

/// Waits for `running`, which are all children of this process, and returns whether all of them
/// exited with status 0. The first child that fails, or a failure to start all of them (`started` =
/// false), makes it kill the others.
inline bool await_all(std::vector<pid_t> running, bool started) {
  bool ok = started;
  while (ok && !running.empty()) {
    int status = 0;
    const pid_t ended = wait(&status);
    if (ended < 0 && errno == EINTR) continue;
    ok = ended > 0 && status == 0;
    std::erase(running, ended); // the system may give its number to another process from now on
  }
  for (const pid_t child : running) kill(child, SIGKILL);
  for (const pid_t child : running) waitpid(child, nullptr, 0);
  return ok;
}

} // namespace perf
