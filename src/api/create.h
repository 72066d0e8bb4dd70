#pragma once

#include <functional>
#include <span>
#include <vector>

#include "api/handle.h"
#include "base/status.h"
#include "bootstrap/gathering.h"
#include "comm/options.h"
#include "comm/setup.h"
#include "whorl/whorl.h"

namespace whorl {

/// Brings the ranks together; gives up when the verdict is raised.
using Gather = std::function<Result<Gathering>(std::uint64_t timeout_ns, const Verdict& verdict)>;

/// Makes a communicator of the ranks that `gather` brings together and writes its handle to `*out`.
/// Blocking: returns when it is ready, or with the error and `*out == nullptr`. Otherwise `*out` is
/// set at once and the rest happens in a thread.
Status create(whorlComm_t* out, const Options& options, bool blocking, Gather gather);
/// One communicator for each rank, all in this process.
Status create_all(whorlComm_t* out, std::span<const Options> options);
/// A part of an existing communicator; `*out` is null for a rank without a color.
Status create_split(whorlComm_t* out, whorlComm& parent, int color, int key,
                    const Options& options);

} // namespace whorl
