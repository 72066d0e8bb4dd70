#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "bootstrap/bootstrap.h"

namespace whorl {

/// Gathers the ranks of this process: one Gathering for each rank, to be used by a thread each.
Result<std::vector<Gathering>> meet_in_process(int nranks, std::uint64_t timeout_ns);

/// Gathers the ranks that the launcher of this process has started (see launcher.h). Several in a
/// row are fine.
Result<Gathering> meet_by_launcher(std::uint64_t timeout_ns, const Verdict& verdict);

} // namespace whorl
