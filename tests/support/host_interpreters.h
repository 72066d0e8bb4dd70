#pragma once

#include <map>
#include <string>

#include "gpu/program.h"

namespace whorl::test {

/// Function that runs a block of a kernel of interpret.cu or exchange.cu on the host with `threads`
/// threads, the caller among them. All blocks of an operation, of all its launches, must run at the
/// same time.
using HostInterpreter = void (*)(const gpu::Launch& launch, unsigned x, unsigned y,
                                 unsigned threads);

/// Returns all these kernels by their names.
const std::map<std::string, HostInterpreter, std::less<>>& host_interpreters();

} // namespace whorl::test
