#pragma once

#include <cstdint>
#include <span>

namespace whorl::simulation {

/// Bug that plant.py has put into the sources of this program.
struct PlantedBug {
  const char* name;
  const char* what;
  const char* scenarios; ///< names of the scenarios that find it, with blanks between them
  std::uint64_t seeds;   ///< seeds of each of them within which it is found
};

/// Returns the bugs in the order of their numbers, from 1; none in the program of the sources as
/// they are.
std::span<const PlantedBug> planted_bugs() noexcept;

} // namespace whorl::simulation
