// Tests that the same program computes the same bits in every run: fresh processes under load, on
// one core or on several, choose the same algorithms, and settings that only affect the speed of an
// operation do not change a bit of its result.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <random>
#include <set>

#include "api/handle.h"
#include "base/hash.h"
#include "base/system.h"
#include "comm/setup.h"
#include "tests/support/process_world.h"
#include "tests/support/shared_array.h"

namespace whorl::test {
namespace {

/// Scope with busy processes, twice as many as there are cores.
class Load {
 public:
  Load() {
    const pid_t parent = getpid();
    for (long i = 0; i < 2 * sysconf(_SC_NPROCESSORS_ONLN); ++i) {
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        compute();
      }
      EXPECT_GT(child, 0);
      if (child > 0) children_.push_back(child);
    }
  }
  ~Load() {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

 private:
  [[noreturn]] static void compute() {
    std::vector<unsigned> memory(1 << 18); // evicts all other data from a core's cache
    for (unsigned round = 0;; ++round) {
      for (volatile unsigned& word : memory) word = word + round;
    }
  }
  std::vector<pid_t> children_;
};

/// Clock whose readings take times of their own: measurements by it depend on the seed.
class StrangeClock final : public System {
 public:
  explicit StrangeClock(unsigned seed) : seed_(seed) {}
  std::uint64_t now_ns() noexcept override {
    const std::uint64_t reading = readings_.fetch_add(1, std::memory_order_relaxed);
    const std::uint64_t late = (reading + seed_) % (2 + seed_ % 7) * 200 * seed_;
    return System::now_ns() + late_.fetch_add(late, std::memory_order_relaxed);
  }

 private:
  std::uint64_t seed_;
  std::atomic<std::uint64_t> readings_{0}, late_{0};
};

/// Places the ranks of one run on the cores.
void place(int rank, int run) {
  const int kind = run % 3;
  if (kind == 0) return; // anywhere
  const auto cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(kind == 1 ? 0 : rank % cores), &one);
  static_cast<void>(sched_setaffinity(0, sizeof one, &one)); // no such core: anywhere
}

/// Algorithms and costs that a communicator has chosen.
struct Choices {
  Selector selector;
  std::uint64_t digest, rehearsed;
};

/// Runs `body` in fresh processes that form a communicator. Their cores depend on the number of the
/// run, their clocks on `clock_seed`; 0: the real time.
void run_fresh(int ranks, int run, unsigned clock_seed, const Environment& environment,
               const std::function<void(RankContext&, whorlComm_t)>& body, int hosts = 1) {
  const auto rank = [&](RankContext& context) {
    place(context.rank, run);
    static StrangeClock clock(clock_seed); // of a fresh process, whose root may use it to the end
    const ScopedSystem scope(&clock);
    Environment own = environment;
    if (hosts > 1) {
      own.emplace_back("WHORL_HOST_ID", std::to_string(context.rank * hosts / ranks));
    }
    const whorlComm_t comm = join(context, own);
    ASSERT_NE(comm, nullptr);
    body(context, comm);
    EXPECT_EQ(whorlCommDestroy(comm), whorlSuccess);
  };
  EXPECT_EQ(failures_of(run_ranks(ranks, Mode::kProcesses, rank)), "") << "run " << run;
}

Choices choices_of_a_run(int ranks, int hosts, int run, const Environment& environment) {
  SharedArray<Choices> found(1);
  const auto look = [&](RankContext& context, whorlComm_t comm) {
    const Communicator& communicator = *comm->communicator;
    const std::uint64_t mine = communicator.digest();
    for (const auto& other : context.allgather(std::as_bytes(std::span(&mine, 1)))) {
      EXPECT_EQ(std::memcmp(other.data(), &mine, sizeof mine), 0);
    }
    if (context.rank != 0) return;
    found[0].digest = mine;
    std::memcpy(&found[0].selector, &communicator.selector(), sizeof(Selector));
    const auto options = Options::from_environment();
    ASSERT_TRUE(options.ok());
    std::vector<int> of_hosts(static_cast<std::size_t>(hosts));
    for (int rank = 0; rank < ranks; ++rank) {
      ++of_hosts[static_cast<std::size_t>(rank * hosts / ranks)];
    }
    const auto rehearsed = rehearse(*options, {.ranks = of_hosts, .one_machine = true});
    ASSERT_TRUE(rehearsed.ok()) << rehearsed.status().message();
    found[0].rehearsed = rehearsed->digest();
  };
  run_fresh(ranks, run, static_cast<unsigned>(run), environment, look, hosts);
  return {found[0].selector, found[0].digest, found[0].rehearsed};
}

TEST(SameBits, FreshProcessesUnderLoadChooseAlike) {
  const Load load;
  const struct {
    int ranks, hosts, communicators;
    const char* transports;
  } kinds[] = {{2, 1, 10, "inproc,shm,tcp"},
               {4, 1, 10, "inproc,shm,tcp"},
               {8, 1, 15, "inproc,shm,tcp"},
               {3, 1, 5, "tcp"},
               {6, 2, 10, "inproc,shm,tcp"}};
  std::set<std::uint64_t> digests;
  for (const auto& kind : kinds) {
    const Environment environment{{"WHORL_TRANSPORTS", kind.transports}};
    const Choices first = choices_of_a_run(kind.ranks, kind.hosts, 0, environment);
    EXPECT_EQ(first.rehearsed, first.digest) << kind.ranks << " ranks";
    for (int run = 1; run < kind.communicators; ++run) {
      const Choices again = choices_of_a_run(kind.ranks, kind.hosts, run, environment);
      EXPECT_EQ(again.digest, first.digest) << kind.ranks << " ranks, run " << run;
      EXPECT_EQ(std::memcmp(&again.selector, &first.selector, sizeof(Selector)), 0);
    }
    digests.insert(first.digest);
  }
  EXPECT_EQ(digests.size(), std::size(kinds)) << "communicators of different shapes differ";
}

TEST(SameBits, WhatIsMeasuredChangesChoices) {
  // Otherwise the test above could not fail: the same clocks, with links measured by them.
  std::set<std::uint64_t> digests;
  for (const int run : {0, 3, 6, 9, 12, 15}) {
    digests.insert(choices_of_a_run(4, 1, run, {{"WHORL_PROBE", "1"}}).digest);
  }
  EXPECT_GT(digests.size(), 1U);
}

constexpr int kRanks = 8;
constexpr std::size_t kCounts[] = {1000, 100'000, 524'288}; // 4 kB, 400 kB, 2 MiB

/// Hashes of each rank's result bits, one for each size.
struct Bits {
  std::uint64_t of[kRanks][std::size(kCounts)];
  friend bool operator==(const Bits&, const Bits&) = default;
};

std::uint64_t hash_of(const std::vector<float>& values) {
  Hash hash;
  for (const float value : values) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    hash.mix(std::uint64_t{bits});
  }
  return hash.value();
}

/// Returns numbers of many magnitudes, whose sum depends on the order of summation.
std::vector<float> numbers(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::vector<float> values(count);
  for (float& value : values) {
    const auto word = static_cast<unsigned>(random());
    value = std::ldexp(static_cast<float>(word >> 8U) - 0x1p23F, static_cast<int>(word % 16U) - 24);
  }
  return values;
}

/// Returns a hash of the bits of several sums, which must be the same each time.
std::uint64_t sum(const std::vector<float>& in, whorlComm_t comm) {
  const std::size_t count = in.size(), block = count / kRanks;
  std::uint64_t first = 0;
  for (int time = 0; time < 3; ++time) {
    std::vector<float> all(count), part(block), root(count), in_place = in;
    const auto check = [&](whorlResult_t result) { EXPECT_EQ(failure(result, comm), ""); };
    check(whorlAllReduce(in.data(), all.data(), count, whorlFloat32, whorlSum, comm, nullptr));
    check(whorlAllReduce(in_place.data(), in_place.data(), count, whorlFloat32, whorlSum, comm,
                         nullptr));
    check(whorlReduceScatter(in.data(), part.data(), block, whorlFloat32, whorlSum, comm, nullptr));
    check(whorlReduce(in.data(), root.data(), count, whorlFloat32, whorlAvg, 3, comm, nullptr));
    EXPECT_EQ(hash_of(in_place), hash_of(all));
    Hash hash;
    for (const auto* values : {&all, &part, &root}) hash.mix(hash_of(*values));
    if (time == 0) first = hash.value();
    EXPECT_EQ(hash.value(), first) << count << " elements, time " << time;
  }
  return first;
}

/// Computes the sums with real clocks: with others yields seem to last long, and waits that sleep
/// instead take minutes beside other work.
Bits sums_of_a_run(int run, const Environment& environment) {
  SharedArray<Bits> bits(1);
  run_fresh(kRanks, run, 0, environment, [&](RankContext& context, whorlComm_t comm) {
    for (std::size_t size = 0; size < std::size(kCounts); ++size) {
      bits[0].of[context.rank][size] = sum(numbers(context.rank, kCounts[size]), comm);
    }
  });
  return bits[0];
}

TEST(SameBits, SumsOfFreshProcessesUnderLoadAreEqual) {
  const Load load;
  const Bits first = sums_of_a_run(0, {});
  for (int run = 1; run < 6; ++run) EXPECT_EQ(sums_of_a_run(run, {}), first) << "run " << run;
}

TEST(SameBits, SpeedIsNotPaidForWithBits) {
  const Bits first = sums_of_a_run(0, {});
  const std::vector<Environment> others{
      {{"WHORL_NONTEMPORAL_BYTES", "0"}},                     // results past the caches
      {{"WHORL_NONTEMPORAL_BYTES", "1000000000"}},            // and never
      {{"WHORL_ZERO_COPY", "0"}, {"WHORL_SPINS", "100"}},     // all through slots
      {{"WHORL_SIMD", "scalar"}, {"WHORL_MAX_CHANNELS", "4"}} // other kernels; idle channels
  };
  for (const Environment& other : others) {
    EXPECT_EQ(sums_of_a_run(0, other), first) << other.front().first;
  }
  // A setting that does change the order of operands changes the bits.
  EXPECT_NE(sums_of_a_run(0, {{"WHORL_ALGO", "ring"}}), first);
}

} // namespace
} // namespace whorl::test
