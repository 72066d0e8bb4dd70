#pragma once

#include "base/status.h"
#include "launchers/launcher.h"

namespace whorl {

/// Joins the PMIx server that PMIX_RANK and its companions name, through libpmix.so.2 loaded at run
/// time. Made by the first call; later ones return the same process. Any thread.
Result<StoreProcess> open_pmix();

} // namespace whorl
