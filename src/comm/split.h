#pragma once

#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "comm/communicator.h"

namespace whorl {

/// Gathers ranks by an all-gather of an existing communicator, all of whose ranks call this. Those
/// with the same non-negative color form the new one, ordered by key, then by rank. Ranks without a
/// color get a gathering of their own kind.
Result<Gathering> meet_by_split(Communicator& parent, int color, int key);

} // namespace whorl
