#pragma once

#include "algorithms/cost_model.h"
#include "base/wait.h"
#include "comm/setup.h"
#include "tuning/link_probe.h"

namespace whorl {

/// What links cost by the constants of the transports: the slowest link of this rank, and the
/// slowest one within its host. A function of the cards, of the number of processors that are
/// online, and of slots, so that every run comes to the same. Transports have been chosen, nothing
/// is connected.
LinkCosts estimate_links(const Setup& setup);
/// Measures the links of this rank, which are connected, while all others do the same, and replaces
/// algorithms and costs of `setup` by rank 0's choice by that. Two rounds. The error of any rank
/// becomes everyone's.
Status choose_by_measuring(Setup& setup, Oob& oob);

} // namespace whorl
