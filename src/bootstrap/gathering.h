#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "bootstrap/bootstrap.h"

namespace whorl {

struct Launch;

/// Gathers `nranks` threads of this process. Returns one Gathering for each rank, each to be used
/// by a thread of its own.
Result<std::vector<Gathering>> meet_in_process(int nranks, std::uint64_t timeout_ns);

/// Gathers the ranks that the launcher of this process has started (see launcher.h). May be called
/// several times in a row.
Result<Gathering> meet_by_launcher(std::uint64_t timeout_ns, const CommError& comm_error);
/// Gathers the ranks of a launch that detect_launch() has found.
Result<Gathering> meet_by_launch(const Launch& launch, std::uint64_t timeout_ns,
                                 const CommError& comm_error);

} // namespace whorl
