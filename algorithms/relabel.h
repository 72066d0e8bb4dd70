#pragma once

#include <span>

#include "schedule/schedule.h"

namespace whorl {

/// Returns the schedule of rank `order[places.rank]`, which does what `places` does: place p is
/// rank `order[p]`. Renames partners and, in a buffer with a block for each rank, blocks; the
/// ranks' messages are those of the places. Where blocks of one message would no longer lie side by
/// side, the whole buffer is in scratch in the order of places, and is copied once.
Schedule relabel(const Schedule& places, std::span<const int> order);

} // namespace whorl
