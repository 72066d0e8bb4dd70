#pragma once

#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "comm/communicator.h"

namespace whorl {

/// Color of a rank that is to have no place in a new communicator.
inline constexpr int kNoColor = -1;

/// Gathers ranks by an all-gather of an existing communicator, all of whose ranks call this. Ranks
/// with the same non-negative color form a new communicator, ordered by key, then by rank. Ranks
/// with kNoColor get a gathering with which they only take part in the rounds of the others; any
/// other color of one rank is an error on all. The identity is left to the caller.
Result<Gathering> meet_by_split(Communicator& parent, int color, int key);

} // namespace whorl
