// Measures how long it takes to make a communicator, and what it occupies: ranks are processes or
// threads of this host and meet by a unique id, through the C API alone.
//
//   comm_create_bench --ranks 2,8,64 --mode processes --repeat 20
//
// A creation takes as long as its slowest rank. "first" is the first creation of the processes;
// later ones find the heap, the random generator and the pages of the library initialised.
// WHORL_LOG=info splits each rank's time by phase.
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "perf/common/forked.h"
#include "whorl/whorl.h"

namespace {

constexpr int kMaxRanks = 512;
constexpr int kMaxRepeats = 1000;
constexpr int kMaxStats = 32;

using perf::now_us;

/// Memory that the ranks share.
struct Board {
  perf::Meeting meeting;
  whorlUniqueId id;
  double create_us[kMaxRepeats][kMaxRanks]; ///< time of one rank
  double destroy_us[kMaxRepeats][kMaxRanks];
  std::uint64_t memory[kMaxStats]; ///< statistics of rank 0 at the end, by whorlCommMemStat_t
  int fds[kMaxRanks];              ///< descriptors that the communicator holds open
  long resident_kib[kMaxRanks];    ///< memory that the communicator has added to the process
};

int open_fds() {
  namespace fs = std::filesystem;
  return static_cast<int>(std::distance(fs::directory_iterator("/proc/self/fd"), {}));
}

long resident_kib() {
  long pages = 0, total = 0;
  std::ifstream("/proc/self/statm") >> total >> pages;
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

void check(whorlResult_t result, const char* what, int rank) {
  if (result == whorlSuccess) return;
  std::fprintf(stderr, "rank %d: %s: %s\n", rank, what, whorlGetLastError(nullptr));
  std::_Exit(1); // the parent kills the others
}

void run_rank(Board& board, int ranks, int rank, int repeats, bool process) {
  const auto meet = [&] { board.meeting.meet(); };
  std::vector<float> data(1024, 1.0F);
  for (int i = 0; i < repeats; ++i) {
    const bool last = process && i == repeats - 1;
    if (rank == 0) check(whorlGetUniqueId(&board.id), "whorlGetUniqueId", rank);
    const int fds = last ? open_fds() : 0;
    const long resident = last ? resident_kib() : 0;
    meet();
    whorlComm_t comm = nullptr;
    const double begin = now_us();
    check(whorlCommInitRank(&comm, ranks, board.id, rank), "whorlCommInitRank", rank);
    board.create_us[i][rank] = now_us() - begin;
    meet();
    if (last) {
      board.fds[rank] = open_fds() - fds;
      board.resident_kib[rank] = resident_kib() - resident;
    }
    check(whorlAllReduce(data.data(), data.data(), data.size(), whorlFloat32, whorlMax, comm,
                         nullptr),
          "whorlAllReduce", rank);
    meet();
    for (int stat = whorlStatHostMemTotal; rank == 0 && stat <= whorlStatHostMemBudget; ++stat) {
      check(whorlCommMemStats(comm, static_cast<whorlCommMemStat_t>(stat), &board.memory[stat]),
            "whorlCommMemStats", rank);
    }
    const double leaving = now_us();
    check(whorlCommDestroy(comm), "whorlCommDestroy", rank);
    board.destroy_us[i][rank] = now_us() - leaving;
    meet();
  }
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Runs the ranks and prints one line. Returns false if a rank failed.
bool measure(int ranks, bool processes, int repeats) {
  void* const memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  Board& board = *new (memory) Board;
  board.meeting.open(ranks);
  // Threads, too, are started in a process of their own: a process that has used the library cannot
  // be forked.
  std::fflush(nullptr);
  std::vector<pid_t> children;
  bool ok = true;
  for (int i = 0; i < (processes ? ranks : 1); ++i) {
    const pid_t child = fork();
    if (child == 0) {
      if (processes) {
        run_rank(board, ranks, i, repeats, true);
      } else {
        std::vector<std::thread> threads;
        for (int rank = 0; rank < ranks; ++rank) {
          threads.emplace_back([&, rank] { run_rank(board, ranks, rank, repeats, false); });
        }
        for (std::thread& thread : threads) thread.join();
      }
      std::_Exit(0);
    }
    ok = ok && child > 0;
    if (child > 0) children.push_back(child);
  }
  ok = perf::await_all(children, ok);
  if (ok) {
    std::vector<double> slowest, each, leaving;
    for (int i = 1; i < repeats; ++i) {
      const double* const row = board.create_us[i];
      slowest.push_back(*std::max_element(row, row + ranks));
      each.insert(each.end(), row, row + ranks);
      leaving.insert(leaving.end(), board.destroy_us[i], board.destroy_us[i] + ranks);
    }
    const double first = *std::max_element(board.create_us[0], board.create_us[0] + ranks);
    std::printf("%5d  %-9s  %9.2f  %9.2f  %9.2f  %9.2f  %9.2f", ranks,
                processes ? "processes" : "threads", first / 1000, median(slowest) / 1000,
                *std::max_element(slowest.begin(), slowest.end()) / 1000, median(each) / 1000,
                median(leaving) / 1000);
    if (processes) {
      std::printf("  %5d  %8ld", *std::max_element(board.fds, board.fds + ranks),
                  *std::max_element(board.resident_kib, board.resident_kib + ranks));
    }
    const auto kib = [&](whorlCommMemStat_t stat) {
      return static_cast<double>(board.memory[stat]) / 1024;
    };
    std::printf(
        "\n       rank 0: %.0f KiB after one allreduce: fifos %.0f, workspaces %.0f, plans "
        "%.1f, sockets %.0f, fixed %.1f; reserved %.0f, shared %.0f\n",
        kib(whorlStatHostMemTotal), kib(whorlStatHostMemFifos), kib(whorlStatHostMemWorkspaces),
        kib(whorlStatHostMemPlans), kib(whorlStatHostMemSocketBuffers), kib(whorlStatHostMemFixed),
        kib(whorlStatHostMemReserved), kib(whorlStatHostMemShared));
  }
  munmap(memory, sizeof(Board));
  return ok;
}

} // namespace

int main(int argc, char** argv) {
  std::vector<int> ranks{2, 4, 8, 16, 32, 64};
  std::string mode = "both";
  int repeats = 11;
  CLI::App app("Time to make a communicator, and what it occupies");
  app.add_option("--ranks", ranks, "numbers of ranks")
      ->delimiter(',')
      ->check(CLI::Range(1, kMaxRanks));
  app.add_option("--mode", mode, "processes, threads or both")
      ->check(CLI::IsMember({"processes", "threads", "both"}));
  app.add_option("--repeat", repeats, "communicators made one after the other")
      ->check(CLI::Range(2, kMaxRepeats));
  CLI11_PARSE(app, argc, argv);
  std::printf("%5s  %-9s  %9s  %9s  %9s  %9s  %9s  %5s  %8s\n", "ranks", "as", "first ms",
              "median ms", "worst ms", "rank ms", "end ms", "fds", "rss KiB");
  for (const bool processes : {true, false}) {
    if (mode != "both" && (mode == "processes") != processes) continue;
    for (const int n : ranks) {
      if (!measure(n, processes, repeats)) return 1;
    }
  }
}
