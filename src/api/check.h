#pragma once

#include <span>

#include "base/status.h"
#include "comm/communicator.h"
#include "engine/request.h"

namespace whorl {

/// Checks a call against the communicator. The error (always kInvalidArgument) names the function,
/// the rank, the argument, its value and what would be right.
Status check_call(const RawCall& call, const Communicator& communicator, Request& request);

/// Checks that the sends and receives of a batch fit together as far as this rank can know: what it
/// sends to itself it receives from itself, and no send could be met by several receives. Errors as
/// those of check_call(); the batch has to be dropped as a whole.
Status check_transfers(std::span<const Request> batch, const Communicator& communicator);

} // namespace whorl
