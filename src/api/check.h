#pragma once

#include <span>

#include "base/status.h"
#include "comm/communicator.h"
#include "engine/request.h"

namespace whorl {

/// Checks a call against the communicator and fills in the request. The error (always
/// kInvalidArgument) names the function, the rank, the argument, its value and what would be right.
Status check_call(const RawCall& call, const Communicator& communicator, Request& request);

/// Checks that the sends and receives of a batch fit together as far as this rank can know: each
/// message from the rank to itself has a receive, and no send could be met by several receives.
/// Errors are as those of check_call(); the caller drops the batch as a whole.
Status check_transfers(std::span<const Request> batch, const Communicator& communicator);

} // namespace whorl
