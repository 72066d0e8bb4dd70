#pragma once

#include <memory>

#include "api/handle.h"
#include "engine/request.h"
#include "engine/stream.h"

namespace whorl {

/// One checked call.
struct Call {
  whorlComm* handle = nullptr;
  Request request;
  std::shared_ptr<Stream> stream; ///< null for a call that is complete when it returns
};

} // namespace whorl
