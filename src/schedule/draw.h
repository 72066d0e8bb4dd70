#pragma once

#include <span>
#include <string>

#include "schedule/simulate.h"

namespace whorl {

/// A picture of who sends what to whom, and when: a column for each rank, time downwards, an arrow
/// for each message with the chunk that it carries, a colour for each channel. Dashed arrows carry
/// partial results. Legible up to about 8 ranks; everything is drawn for more.
std::string to_svg(const Simulation& simulation, int nranks, const CollectiveSpec& spec,
                   const std::string& title);

/// The same as a table: a row for each round, a column for each rank, what it receives.
std::string to_table(const Simulation& simulation, int nranks, const CollectiveSpec& spec);

} // namespace whorl
