#pragma once

#include "base/status.h"
#include "launchers/key_value.h"

namespace whorl {

/// Connects to the PMIx server that PMIX_RANK and its companions name, through libpmix.so.2 loaded
/// at run time. The first call connects; later calls return the same process. May be called by any
/// thread.
Result<StoreProcess> open_pmix();

} // namespace whorl
