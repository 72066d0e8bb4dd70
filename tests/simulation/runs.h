#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "simulation/planted_bugs.h"
#include "simulation/scenario.h"

namespace whorl::simulation {

/// Returns the scenario with this name; null if there is none.
const Scenario* find_scenario(std::string_view name) noexcept;

/// Runs a scenario with seeds from `first` on until one fails, of which it prints what is wrong and
/// how to run it again. Returns whether all are well.
bool run_seeds(const Scenario& scenario, std::uint64_t first, std::uint64_t seeds,
               bool trace = false);
/// Runs all scenarios, each with its part of the seeds.
bool run_all(std::uint64_t first, std::uint64_t seeds);

/// Outcome of the search for a planted bug.
struct Finding {
  bool found = false;
  std::uint64_t seeds = 0; ///< seeds that the search took
  std::string how;         ///< what went wrong in the run that found it
};
/// Returns the number of a bug of planted_bugs(), by which it is switched on.
int number_of(const PlantedBug& bug) noexcept;
/// Runs the scenarios of a bug, in a process of its own because the bug may end it.
Finding find_bug(const PlantedBug& bug, int number);

} // namespace whorl::simulation
