// Ranks for a measurement: processes forked from this process, which share memory with it.
#include "tools/explain/ranks.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "perf/common/forked.h"

namespace whorl::explain {

struct Meeting {
  struct alignas(128) Flag {
    std::atomic<std::uint64_t> value; // release by its rank; acquire by the other one
  };
  perf::Meeting all;
  whorlUniqueId id;
  std::array<char, 1024> error; ///< error of a rank
  cpu_set_t allowed;            ///< processors before ranks were bound
  Flag flags[2];
  double exchange_ns;
};

namespace {

constexpr unsigned kLimitSeconds = 120;

/// Returns a set of the `index`-th processor of a set; empty if there are fewer.
cpu_set_t processor(const cpu_set_t& allowed, int index) {
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || index-- > 0) continue;
    CPU_SET(cpu, &one);
    break;
  }
  return one;
}

void bind(const cpu_set_t& processors) {
  static_cast<void>(sched_setaffinity(0, sizeof processors, &processors));
}

[[noreturn]] void run_child(Meeting& meeting, int rank, int nranks, void* shared, pid_t parent,
                            const std::function<void(RankProcess&, void*)>& body) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) std::_Exit(1);
  alarm(kLimitSeconds);
  // Launchers bind ranks as well.
  if (CPU_COUNT(&meeting.allowed) >= nranks) bind(processor(meeting.allowed, rank));
  RankProcess process(meeting, rank, nranks);
  body(process, shared);
  std::_Exit(0);
}

} // namespace

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

void RankProcess::meet() { meeting_.all.meet(); }

void RankProcess::check(whorlResult_t result, const char* what) {
  if (result == whorlSuccess) return;
  fmt::format_to_n(meeting_.error.data(), meeting_.error.size() - 1, "rank {}: {}: {}", rank_, what,
                   whorlGetLastError(nullptr));
  std::_Exit(1);
}

whorlComm_t RankProcess::create(const std::string& algorithm) {
  setenv("WHORL_ALGO", algorithm.c_str(), 1);
  if (rank_ == 0) check(whorlGetUniqueId(&meeting_.id), "whorlGetUniqueId");
  meet();
  whorlComm_t comm = nullptr;
  check(whorlCommInitRank(&comm, nranks_, meeting_.id, rank_), "whorlCommInitRank");
  return comm;
}

double RankProcess::exchange_ns() {
  constexpr int kBatches = 8;
  constexpr std::uint64_t kBatch = 100;
  if (nranks_ < 2 || CPU_COUNT(&meeting_.allowed) < 2) return 0;
  if (rank_ < 2) {
    cpu_set_t before;
    static_cast<void>(sched_getaffinity(0, sizeof before, &before));
    bind(processor(meeting_.allowed, rank_));
    std::atomic<std::uint64_t>& own = meeting_.flags[rank_].value;
    const std::atomic<std::uint64_t>& other = meeting_.flags[1 - rank_].value;
    std::vector<double> times;
    std::uint64_t number = own.load(std::memory_order_relaxed);
    for (int batch = 0; batch < kBatches; ++batch) {
      const double begin = perf::now_us();
      for (std::uint64_t i = 0; i < kBatch; ++i) {
        own.store(++number, std::memory_order_release); // pairs with the acquire below
        // lint: the distance of two cores is the time of this very loop
        while (other.load(std::memory_order_acquire) < number) {
#ifdef __x86_64__
          __builtin_ia32_pause();
#endif
        }
      }
      times.push_back((perf::now_us() - begin) * 1e3 / static_cast<double>(kBatch));
    }
    // The minimum counts: in slower batches one of the two ranks may have waited for its core.
    if (rank_ == 0) meeting_.exchange_ns = quantile(times, 0);
    bind(before);
  }
  meet();
  const double result = meeting_.exchange_ns;
  meet();
  return result;
}

Status run_ranks(int nranks, std::size_t bytes,
                 const std::function<void(RankProcess&, void* shared)>& body,
                 const std::function<void(void* shared)>& finish) {
  constexpr std::size_t kFirst = (sizeof(Meeting) + 4095) / 4096 * 4096;
  void* const memory =
      mmap(nullptr, kFirst + bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return Status::error(Code::kSystemError,
                         fmt::format("cannot map {} bytes to share with the ranks", bytes));
  }
  Meeting& meeting = *new (memory) Meeting; // zeroed by the system
  void* const shared = static_cast<std::byte*>(memory) + kFirst;
  CPU_ZERO(&meeting.allowed);
  static_cast<void>(sched_getaffinity(0, sizeof meeting.allowed, &meeting.allowed));
  meeting.all.open(nranks);
  std::fflush(nullptr);
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  bool ok = true;
  for (int rank = 0; rank < nranks && ok; ++rank) {
    const pid_t child = fork();
    if (child == 0) run_child(meeting, rank, nranks, shared, parent, body);
    ok = child > 0;
    if (ok) children.push_back(child);
  }
  ok = perf::await_all(children, ok);
  Status status;
  if (ok) {
    finish(shared);
  } else {
    status = Status::error(Code::kSystemError,
                           meeting.error[0] != '\0'
                               ? std::string(meeting.error.data())
                               : "a rank ended without a word, or took longer than 120 s");
  }
  munmap(memory, kFirst + bytes);
  return status;
}

} // namespace whorl::explain
