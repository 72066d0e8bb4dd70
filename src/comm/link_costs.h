#pragma once

#include "algorithms/cost_model.h"
#include "base/wait.h"
#include "comm/setup.h"
#include "tuning/cost_table.h"
#include "tuning/link_probe.h"

namespace whorl {

/// Returns the costs of links by what their ranks share: by the constants of the transports, the
/// rates of NICs and switches, and WHORL_COST_FILE. The result depends only on the PeerInfos, the
/// number of online processors, the slots and that file, so it is the same in every run. To be
/// called once transports have been chosen; nothing needs to be connected. The error is about the
/// file.
Result<CostTable> estimate_links(const Setup& setup);
/// Measures the connected links of this rank while all other ranks measure theirs, and replaces the
/// algorithms and costs of `setup` by what rank 0 chooses from the measurements. Takes two rounds.
/// The error of any rank becomes the error of all.
Status choose_by_measuring(Setup& setup, Oob& oob);

} // namespace whorl
