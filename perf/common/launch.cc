#include "perf/common/launch.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace perf {
namespace {

using Clock = std::chrono::steady_clock;

/// Time in which the other ranks may notice a failure by themselves before they are killed.
constexpr auto kGrace = std::chrono::seconds(5);
/// Time that process 0 may take to make the id.
constexpr auto kMeetLimit = std::chrono::seconds(60);

bool is_set(const char* variable) { return std::getenv(variable) != nullptr; }

/// Maximum number of failures that are printed; the others are mostly consequences of these.
constexpr int kMaxReports = 4;

struct Child {
  pid_t pid;
  bool running;
};

/// Prints why a child that did not return 0 ended.
void report(const Board& board, int index, int status) {
  const Board::Slot& slot = board.slots[index];
  // pairs with the release in Process::fail
  if (slot.failed.load(std::memory_order_acquire) != 0) {
    std::fprintf(stderr, "%s\n", slot.text);
  } else if (WIFSIGNALED(status)) {
    std::fprintf(stderr, "Process %d was killed by signal %d (%s).\n", index, WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
  } else {
    std::fprintf(stderr, "Process %d ended with exit status %d.\n", index, WEXITSTATUS(status));
  }
}

void kill_running(const std::vector<Child>& children) {
  for (const Child& child : children) {
    if (child.running) kill(child.pid, SIGKILL);
  }
}

/// Waits for all children and returns the exit code; see launch(). Exit status 3 stands for wrong
/// results, which the table has already shown.
int await(std::vector<Child>& children, const Board& board, int timeout_s) {
  const auto start = Clock::now();
  auto deadline =
      timeout_s > 0 ? start + std::chrono::seconds(timeout_s) : Clock::time_point::max();
  std::size_t running = children.size();
  int code = 0;
  bool killed = false;
  int reports = 0;
  while (running > 0) {
    bool progress = false;
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (!children[i].running) continue;
      int status = 0;
      const pid_t reaped = waitpid(children[i].pid, &status, WNOHANG);
      if (reaped == 0 || (reaped < 0 && errno == EINTR)) continue;
      children[i].running = false;
      --running;
      progress = true;
      if (reaped < 0 || status == 0) continue;
      // The first process prints the table, which nobody reads any more, as with `| head`.
      if (i == 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE && !killed) {
        kill_running(children);
        killed = true;
      }
      if (!killed && reports++ < kMaxReports && !(WIFEXITED(status) && WEXITSTATUS(status) == 3)) {
        report(board, static_cast<int>(i), status);
      }
      code = 1;
      deadline = std::min(deadline, Clock::now() + kGrace);
    }
    if (running > 0 && Clock::now() >= deadline && !killed) {
      std::fprintf(stderr,
                   code == 0 ? "The run took longer than -T allows; ending its %zu processes.\n"
                             : "%zu processes did not notice the failure; ending them.\n",
                   running);
      kill_running(children);
      killed = true;
      code = 1;
    }
    if (!progress) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return code;
}

/// Binds this process to one of the cores that it may use, as MPI's launchers do. Two ranks that
/// start on one core and yield to each other may stay there while the other core idles.
void bind_to_core(int index) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || index-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one,
                      &one); // if refused, the system places the process
    return;
  }
}

int run_child(const Process& process, pid_t parent,
              const std::function<int(const Process&)>& body) {
  // Kill the ranks when the program ends, however it ends.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) return 1;
  const int code = body(process);
  std::fflush(nullptr);
  return code;
}

} // namespace

const char* launcher_name() {
  if (is_set("WHORL_RANK")) return "WHORL_RANK";
  if (is_set("RANK") && is_set("WORLD_SIZE")) return "torchrun";
  if (is_set("OMPI_COMM_WORLD_RANK")) return "Open MPI";
  if (is_set("PMIX_RANK")) return "PMIx";
  if (is_set("PMI_RANK")) return "PMI";
  if (is_set("SLURM_PROCID") && is_set("SLURM_STEP_ID")) return "Slurm";
  return nullptr;
}

UniqueId Process::meet() const {
  if (index == 0) {
    check(XCCL(GetUniqueId)(&board->id), nullptr, "GetUniqueId");
    board->id_ready.store(1, std::memory_order_release); // pairs with the acquire below
    return board->id;
  }
  const auto deadline = Clock::now() + kMeetLimit;
  // pairs with the release above
  while (board->id_ready.load(std::memory_order_acquire) == 0) {
    if (Clock::now() > deadline) throw Failure("Process 0 has not made the communicator's id.");
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return board->id;
}

void Process::fail(const std::string& who, const std::string& sentence, int status) const {
  static std::mutex first; // never unlocked: a second failing thread waits here for the exit
  first.lock();
  const std::string text = who + ": " + sentence;
  if (board != nullptr) {
    Board::Slot& slot = board->slots[index];
    std::snprintf(slot.text, sizeof(slot.text), "%s", text.c_str());
    slot.failed.store(1, std::memory_order_release); // pairs with the acquire in report
  } else {
    std::fprintf(stderr, "%s\n", text.c_str());
  }
  std::fflush(nullptr);
  std::_Exit(status);
}

int launch(const Options& options, const std::function<int(const Process&)>& body) {
  if (launcher_name() != nullptr) {
    if (options.timeout_s > 0) alarm(static_cast<unsigned>(options.timeout_s));
    return body(Process{0, 0, nullptr});
  }

  const int processes = options.ranks / options.ranks_per_process();
  const std::size_t bytes =
      sizeof(Board) + sizeof(Board::Slot) * static_cast<std::size_t>(processes);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::fprintf(stderr, "Cannot map %zu bytes to share with the ranks: %s.\n", bytes,
                 std::strerror(errno));
    return 1;
  }
  auto* board = new (memory) Board; // the mapping is zeroed and ends with the process

  std::fflush(nullptr);
  const pid_t parent = getpid();
  std::vector<Child> children;
  for (int i = 0; i < processes; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      if (options.binds()) bind_to_core(i);
      std::_Exit(run_child(Process{i, processes, board}, parent, body));
    }
    if (pid < 0) {
      std::fprintf(stderr, "Cannot start process %d of %d: %s.\n", i, processes,
                   std::strerror(errno));
      for (const Child& child : children) kill(child.pid, SIGKILL);
      for (const Child& child : children) waitpid(child.pid, nullptr, 0);
      return 1;
    }
    children.push_back({pid, true});
  }
  return await(children, *board, options.timeout_s);
}

} // namespace perf
