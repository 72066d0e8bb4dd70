#include "simulation/runs.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "simulation/planted.h"
#include "simulation/world.h"

namespace whorl::simulation {
namespace {

constexpr rlim_t kMaxCpuSeconds = 20; ///< longest search for a planted bug

/// Runs one seed. Returns what went wrong; empty: nothing.
std::string run_seed(const Scenario& scenario, std::uint64_t seed, bool trace) {
  world().begin(seed, trace);
  scenario.run();
  return world().failure();
}

/// Prints to the pipe `out` what find_bug() reads: the number of seeds, and what went wrong.
void search(const PlantedBug& bug, int out) {
  std::uint64_t tried = 0;
  std::string_view names = bug.scenarios;
  std::string how;
  while (!names.empty() && how.empty()) {
    const std::string_view name = names.substr(0, names.find(' '));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    const Scenario* const scenario = find_scenario(name);
    if (scenario == nullptr) continue;
    for (std::uint64_t seed = 1; seed <= bug.seeds && how.empty(); ++seed) {
      ++tried;
      // Told before each run, which may be the last one of this process.
      dprintf(out, "%llu\n", static_cast<unsigned long long>(tried));
      how = run_seed(*scenario, seed, false);
    }
  }
  dprintf(out, "%s\n", how.c_str());
}

} // namespace

const Scenario* find_scenario(std::string_view name) noexcept {
  for (const Scenario& scenario : scenarios()) {
    if (scenario.name == name) return &scenario;
  }
  return nullptr;
}

bool run_seeds(const Scenario& scenario, std::uint64_t first, std::uint64_t seeds, bool trace) {
  const auto began = std::chrono::steady_clock::now();
  std::uint64_t accesses = 0;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    const std::string failure = run_seed(scenario, seed, trace);
    accesses += world().scheduler().accesses();
    if (failure.empty()) continue;
    fmt::print("scenario {}, seed {}: {}\nto see it: --scenario {} --seed {} --trace\n",
               scenario.name, seed, failure, scenario.name, seed);
    return false;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  fmt::print("{:10} seeds {} to {}: {} accesses, {:.2f} s\n", scenario.name, first,
             first + seeds - 1, accesses, took.count());
  std::fflush(stdout);
  return true;
}

bool run_all(std::uint64_t first, std::uint64_t seeds) {
  const auto all = scenarios();
  const unsigned weights =
      std::accumulate(all.begin(), all.end(), 0U,
                      [](unsigned sum, const Scenario& one) { return sum + one.weight; });
  bool well = true;
  for (const Scenario& scenario : all) {
    well &=
        run_seeds(scenario, first, std::max<std::uint64_t>(1, seeds * scenario.weight / weights));
  }
  return well;
}

int number_of(const PlantedBug& bug) noexcept {
  return static_cast<int>(&bug - planted_bugs().data()) + 1;
}

Finding find_bug(const PlantedBug& bug, int number) {
  std::fflush(stdout);
  int ends[2];
  if (pipe(ends) < 0) return {.how = "no pipe"};
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    // A bug may also make a loop that accesses nothing.
    const rlimit limit{.rlim_cur = kMaxCpuSeconds, .rlim_max = kMaxCpuSeconds};
    setrlimit(RLIMIT_CPU, &limit);
    planted_bug = number;
    search(bug, ends[1]);
    _exit(0);
  }
  close(ends[1]);
  std::FILE* const in = fdopen(ends[0], "r");
  Finding finding;
  char line[4096];
  while (std::fgets(line, sizeof line, in) != nullptr) {
    char* end = nullptr;
    const std::uint64_t seeds = std::strtoull(line, &end, 10);
    if (end != line && *end == '\n') {
      finding.seeds = seeds;
    } else {
      finding.how.assign(line, std::strcspn(line, "\n"));
    }
  }
  std::fclose(in);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status)) finding.how = fmt::format("ends with signal {}", WTERMSIG(status));
  finding.found = !finding.how.empty();
  return finding;
}

} // namespace whorl::simulation
