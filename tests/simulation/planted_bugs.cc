#include "simulation/planted_bugs.h"

namespace whorl::simulation {

std::span<const PlantedBug> planted_bugs() noexcept {
#ifdef WHORL_PLANTED_BUGS
  static constexpr PlantedBug kBugs[] = {
#include "planted_bugs.inc"
  };
  return kBugs;
#else
  return {};
#endif
}

} // namespace whorl::simulation
