#pragma once

#include <span>

namespace whorl::simulation {

/// Program of a few ranks for the simulation, and what must hold in it. `run` prepares memory and
/// fibres, runs them once in world(), and reports what is wrong by World::fail().
struct Scenario {
  const char* name;
  const char* about;
  unsigned weight; ///< part of the seeds of a run over all scenarios
  void (*run)();
};

std::span<const Scenario> scenarios() noexcept;

} // namespace whorl::simulation
