#pragma once

#include <cstddef>
#include <string>

#include "transports/fifo/layout.h"

namespace whorl::simulation {

// Names of the parts of shared memory, for traces and failures.

void name_state(const RankState& state, int rank);
void name_fifo(const std::byte* fifo, const FifoShape& shape, const std::string& text);
void name_segment(const std::byte* segment, const SegmentLayout& layout);

} // namespace whorl::simulation
