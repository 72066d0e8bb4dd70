#pragma once

#include <map>
#include <string>

#include "gpu/program.h"

namespace whorl::testing {

/// What a block does that runs a kernel of interpret.cu, on the host: one thread is the block. All
/// blocks of an operation, of all its launches, have to run at the same time.
using HostInterpreter = void (*)(const gpu::Launch& launch, unsigned x, unsigned y);

/// All kernels of interpret.cu, by their names.
const std::map<std::string, HostInterpreter, std::less<>>& host_interpreters();

} // namespace whorl::testing
