#pragma once

#include <memory>

#include "base/status.h"
#include "transports/transport.h"

namespace whorl {

/// Makes a UcxTransport; an error if whorl was built without UCX.
Result<std::unique_ptr<Transport>> make_ucx_transport();
/// Loads UCX. The error says why there is none here.
Status check_ucx();

} // namespace whorl
