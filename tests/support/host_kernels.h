#pragma once

#include <map>
#include <string>

#include "gpu/work.h"

namespace whorl::testing {

/// What a grid of blocks does that runs a kernel of src/gpu on the host: the threads one after the
/// other. `blocks` is the grid's x.
using HostKernel = void (*)(const gpu::Work& work, unsigned blocks, unsigned threads);

/// All kernels of combine.cu, by their names.
const std::map<std::string, HostKernel, std::less<>>& host_kernels();

} // namespace whorl::testing
