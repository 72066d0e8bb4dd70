#pragma once

#include <map>
#include <string>

#include "gpu/work.h"

namespace whorl::test {

/// Function that runs a grid of a src/gpu kernel on the host, thread by thread.
using HostKernel = void (*)(const gpu::Work& work, const gpu::Grid& grid);

/// Returns all kernels of combine.cu by their names.
const std::map<std::string, HostKernel, std::less<>>& host_kernels();

} // namespace whorl::test
