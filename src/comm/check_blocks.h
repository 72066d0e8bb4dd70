#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "comm/request.h"

namespace whorl {

/// A call whose blocks have different sizes, as the user made it: nothing has been checked. Where a
/// side is one block, its count is in the call and the arrays are not used.
struct RawBlocksCall {
  RawCall call;
  const std::size_t* send_counts = nullptr;
  const std::size_t* send_displacements = nullptr; ///< null: side by side
  const std::size_t* recv_counts = nullptr;
  const std::size_t* recv_displacements = nullptr; ///< null: side by side
};

/// Checks a call against the communicator and appends what carries it out to `requests`: one
/// request with blocks, or for reduce-scatter one for each block. Errors as those of check_call();
/// then nothing is appended.
Status check_blocks(const RawBlocksCall& raw, const Communicator& communicator,
                    std::vector<Request>& requests);

} // namespace whorl
