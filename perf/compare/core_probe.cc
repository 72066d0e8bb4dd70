// Distance of two cores: the time in which two threads, pinned to the first two processors that
// this process may use, exchange flags.
//
//   thread 0:  own = i;  wait until peer ≥ i       (and the other way round in thread 1)
//
// A host can move the cores of a virtual machine, and times differ severalfold with their distance.
// Prints "LOW MEDIAN" in nanoseconds for one exchange, over batches in about 0.1 s. LOW is the
// tenth percentile of the batches: the distance, even on a busy machine. A median far above LOW
// means that other processes used the cores.

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kBatch = 500;
constexpr std::uint64_t kBatches = 800;
constexpr auto kLimit = std::chrono::milliseconds(150);

struct alignas(128) Flag {
  std::atomic<std::uint64_t> value{0}; // release by its own thread; acquire by the other thread
};
Flag flags[2];
std::atomic<std::uint64_t> last{kBatch * kBatches}; // relaxed: read after a later flag's acquire

bool pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof(set), &set) == 0;
}

void exchange(int self, std::uint64_t i) {
  flags[self].value.store(i, std::memory_order_release);
  while (flags[1 - self].value.load(std::memory_order_acquire) < i) {
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
  }
}

} // namespace

int main() {
  cpu_set_t allowed;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
    }
  }
  if (cpus.size() < 2) {
    std::fputs("core_probe: this process may use only one processor.\n", stderr);
    return 1;
  }

  // Thread 0 may end early, in the batch in which it finds the limit exceeded; thread 1 reads
  // `last` after each exchange, hence after thread 0 has written it.
  std::thread other([&] {
    pin(cpus[1]);
    for (std::uint64_t i = 1; i <= last.load(std::memory_order_relaxed); ++i) exchange(1, i);
  });
  pin(cpus[0]);
  std::vector<double> times;
  const auto begin = Clock::now();
  for (std::uint64_t batch = 0; batch < kBatches; ++batch) {
    const auto start = Clock::now();
    const bool final = batch > 0 && start - begin > kLimit;
    if (final) last.store((batch + 1) * kBatch, std::memory_order_relaxed);
    for (std::uint64_t i = 1; i <= kBatch; ++i) exchange(0, batch * kBatch + i);
    const std::chrono::duration<double, std::nano> took = Clock::now() - start;
    if (batch > 0) times.push_back(took.count() / kBatch); // batch 0 has the thread's start
    if (final) break;
  }
  other.join();
  std::sort(times.begin(), times.end());
  std::printf("%.1f %.1f\n", times[times.size() / 10], times[times.size() / 2]);
  return 0;
}
