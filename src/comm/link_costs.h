#pragma once

#include "algorithms/cost_model.h"
#include "base/wait.h"
#include "comm/setup.h"
#include "tuning/link_probe.h"

namespace whorl {

/// Returns the costs of links by the constants of the transports: of the slowest link of this rank,
/// and of the slowest one within its host. The result depends only on the PeerInfos, the number of
/// online processors and the slots, so it is the same in every run. To be called once transports
/// have been chosen; nothing needs to be connected.
LinkCosts estimate_links(const Setup& setup);
/// Measures the connected links of this rank while all other ranks measure theirs, and replaces the
/// algorithms and costs of `setup` by what rank 0 chooses from the measurements. Takes two rounds.
/// The error of any rank becomes the error of all.
Status choose_by_measuring(Setup& setup, Oob& oob);

} // namespace whorl
