#pragma once

#include <map>
#include <string>

#include "gpu/program.h"

namespace whorl::testing {

/// What a block of `threads` threads does that runs a kernel of interpret.cu, on the host. The
/// caller is one of them. All blocks of an operation, of all its launches, have to run at the same
/// time.
using HostInterpreter = void (*)(const gpu::Launch& launch, unsigned x, unsigned y,
                                 unsigned threads);

/// All kernels of interpret.cu, by their names.
const std::map<std::string, HostInterpreter, std::less<>>& host_interpreters();

} // namespace whorl::testing
