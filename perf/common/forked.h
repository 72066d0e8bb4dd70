#pragma once

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstddef>
#include <vector>

// For programs that fork their ranks and measure them, in memory that was mapped shared before.

namespace perf {

/// A clock that is the same in all processes.
inline double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// A barrier in shared memory. It blocks: a rank that waits takes no core from the others.
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

/// Waits for all children of this process and returns whether all ended well. The first that does
/// not, and a failure to start all (`started` = false), end the others.
inline bool await_all(const std::vector<pid_t>& children, bool started) {
  bool ok = started;
  for (std::size_t left = children.size(); left > 0; --left) {
    int status = 0;
    if (ok && wait(&status) > 0 && status == 0) continue;
    ok = false;
    for (const pid_t child : children) kill(child, SIGKILL);
    for (const pid_t child : children) waitpid(child, &status, 0);
    break;
  }
  return ok;
}

} // namespace perf
