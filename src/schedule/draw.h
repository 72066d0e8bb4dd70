#pragma once

#include <string>

#include "schedule/simulate.h"

namespace whorl {

/// Draws the messages of a simulation as an SVG picture: a column for each rank, time downwards, an
/// arrow for each message with the chunk that it carries, a colour for each channel. Dashed arrows
/// carry partial results. Legible up to about 8 ranks; more are drawn, too.
std::string to_svg(const Simulation& simulation, int nranks, const CollectiveSpec& spec,
                   const std::string& title);

/// Writes a simulation as a table: a row for each round, a column for each rank, in it what the
/// rank receives.
std::string to_table(const Simulation& simulation, int nranks, const CollectiveSpec& spec);

} // namespace whorl
