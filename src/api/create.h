#pragma once

#include <functional>
#include <span>

#include "api/handle.h"
#include "base/status.h"
#include "bootstrap/gathering.h"
#include "comm/options.h"
#include "comm/setup.h"
#include "whorl/whorl.h"

namespace whorl {

/// Function that brings the ranks together, and gives up when the error is set. If the error is set
/// from the start, the function tells the others so, where that is possible, and fails.
using Gather =
    std::function<Result<Gathering>(std::uint64_t timeout_ns, const CommError& comm_error)>;

/// Makes a communicator of the ranks that `gather` brings together and writes its handle to `*out`.
/// If `blocking`, returns when the communicator is ready, or with the error and `*out == nullptr`.
/// Otherwise sets `*out` at once, and a thread does the rest. `parent`: communicator out of which
/// this one is made, and whose end ends a blocking creation, too; null: none.
Status create(whorlComm_t* out, const Options& options, bool blocking, Gather gather,
              whorlComm* parent = nullptr);
/// Makes one communicator for each rank, all in this process.
Status create_all(whorlComm_t* out, std::span<const Options> options);
/// Makes a part of an existing communicator; `*out`, null before the call, stays so for a rank
/// without a color. A rank with a color whose options are an error tells it to the others.
Status create_split(whorlComm_t* out, whorlComm& parent, int color, int key,
                    const Result<Options>& options);

namespace capi {
/// Joins rank `rank` to the communicator of an id, at once or at the end of the open group. If
/// `arguments` is an error, or the rank has wrong arguments otherwise, tells the others why it does
/// not come. `parent`: see create().
Status init_rank(const char* function, whorlComm_t* comm, int nranks, const whorlUniqueId& bytes,
                 int rank, whorlConfig_t* config, const Status& arguments = {},
                 whorlComm* parent = nullptr);
/// Starts a root and writes its id to `*out`.
Status make_id(const char* function, whorlUniqueId* out);
} // namespace capi

} // namespace whorl
