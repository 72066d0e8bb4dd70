#pragma once

#include "base/status.h"
#include "comm/communicator.h"
#include "comm/request.h"

namespace whorl {

/// Checks a call against the communicator. The error (always kInvalidArgument) names the function,
/// the rank, the argument, its value and what would be right.
Status check_call(const RawCall& call, const Communicator& communicator, Request& request);

} // namespace whorl
