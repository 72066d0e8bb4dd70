#pragma once

#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "comm/communicator.h"

namespace whorl {

/// Gathers ranks by an all-gather of an existing communicator, all of whose ranks call this. Ranks
/// with the same non-negative color form a new communicator, ordered by key, then by rank. Ranks
/// without a color get a gathering with which they only take part in the rounds of the others.
Result<Gathering> meet_by_split(Communicator& parent, int color, int key);

} // namespace whorl
