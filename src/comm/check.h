#pragma once

#include <cstddef>
#include <optional>

#include "base/status.h"
#include "comm/communicator.h"
#include "comm/request.h"

namespace whorl {

/// A call as the user made it: nothing has been checked.
struct RawCall {
  const char* function = "";
  Collective collective = Collective::kBarrier;
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;
  int type = 1; ///< whorlUint8
  int op = 0;   ///< whorlSum
  int peer = 0; ///< root, or partner
};

/// Checks a call against the communicator. The error (always kInvalidArgument) names the function,
/// the rank, the argument, its value and what would be right.
Status check_call(const RawCall& call, const Communicator& communicator, Request& request);

} // namespace whorl
