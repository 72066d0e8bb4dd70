// The simulation: runs scenarios with seeds, one run for each seed, until one fails.
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/system.h"
#include "simulation/planted.h"
#include "simulation/planted_bugs.h"
#include "simulation/runs.h"
#include "simulation/scenario.h"
#include "simulation/system.h"

namespace whorl::simulation {
namespace {

constexpr std::string_view kUsage =
    R"(usage: simulation [--scenario NAME] [--first SEED] [--seeds N | --minutes M]
       simulation --scenario NAME --seed SEED [--trace] [--bug NAME]
       simulation --planted [--bug NAME]
       simulation --list

  --scenario  only this scenario; otherwise all, with parts of the seeds by their weights
  --seeds     number of runs, from seed --first on
  --minutes   as many runs as fit into this time, in rounds of --seeds
  --seed      one run; with --trace, what happened in it
  --planted   checks that the scenarios find each planted bug (in the program that has them)
  --bug       switches a planted bug on
)";

[[noreturn]] void stop(const std::string& why) {
  fmt::print(stderr, "{}\n{}", why, kUsage);
  std::exit(2);
}

struct Options {
  std::string scenario; ///< empty: all
  std::string bug;
  std::uint64_t first = 1;
  std::uint64_t seeds = 1000;
  double minutes = 0; ///< 0: as many runs as `seeds` says
  bool trace = false;
  bool planted = false;
  bool list = false;
};

Options options_of(int argc, char** argv) {
  Options options;
  const auto value = [&](int& i) -> const char* {
    return ++i < argc ? argv[i] : (stop(fmt::format("{} takes a value", argv[i - 1])), nullptr);
  };
  const auto number = [&](int& i) { return std::strtoull(value(i), nullptr, 10); };
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--scenario") {
      options.scenario = value(i);
    } else if (name == "--bug") {
      options.bug = value(i);
    } else if (name == "--seeds") {
      options.seeds = number(i);
    } else if (name == "--first") {
      options.first = number(i);
    } else if (name == "--seed") {
      options.first = number(i);
      options.seeds = 1;
    } else if (name == "--minutes") {
      options.minutes = std::strtod(value(i), nullptr);
    } else if (name == "--trace") {
      options.trace = true;
    } else if (name == "--planted") {
      options.planted = true;
    } else if (name == "--list") {
      options.list = true;
    } else {
      stop(fmt::format("there is no option {}", name));
    }
  }
  return options;
}

void list() {
  for (const Scenario& scenario : scenarios()) {
    fmt::print("{:12} {}\n", scenario.name, scenario.about);
  }
  for (const PlantedBug& bug : planted_bugs()) fmt::print("{:30} {}\n", bug.name, bug.what);
}

int check_planted(const std::string& only) {
  int checked = 0, missed = 0;
  for (const PlantedBug& bug : planted_bugs()) {
    if (!only.empty() && only != bug.name) continue;
    ++checked;
    const Finding finding = find_bug(bug, number_of(bug));
    missed += !finding.found;
    fmt::print("{} {:30} {:5} seeds  {}\n", finding.found ? "found " : "MISSED", bug.name,
               finding.seeds, finding.how);
  }
  if (checked == 0) stop("there is no such planted bug in this program");
  fmt::print("{} of {} planted bugs found\n", checked - missed, checked);
  return missed == 0 ? 0 : 1;
}

int run(const Options& options) {
  if (options.list) return list(), 0;
  if (options.planted) return check_planted(options.bug);
  if (!options.bug.empty()) {
    for (const PlantedBug& bug : planted_bugs()) {
      if (options.bug == bug.name) planted_bug = number_of(bug);
    }
    if (planted_bug == 0) stop("there is no such planted bug in this program");
  }
  if (!options.scenario.empty()) {
    const Scenario* const scenario = find_scenario(options.scenario);
    if (scenario == nullptr) stop("there is no such scenario, see --list");
    return run_seeds(*scenario, options.first, options.seeds, options.trace) ? 0 : 1;
  }
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::duration<double, std::ratio<60>>(options.minutes);
  std::uint64_t first = options.first;
  do {
    if (!run_all(first, options.seeds)) return 1;
    first += options.seeds;
  } while (std::chrono::steady_clock::now() < end);
  return 0;
}

} // namespace
} // namespace whorl::simulation

int main(int argc, char** argv) {
  const auto options = whorl::simulation::options_of(argc, argv);
  ::setenv("WHORL_LOG", "error", 1); // simulated ranks wait for long
  whorl::simulation::SimulatedSystem system;
  const whorl::ScopedSystem replaced(&system);
  return whorl::simulation::run(options);
}
