// Flags of nccl-tests about CUDA streams, graphs, registration and kernels of the device, which
// scripts written for nccl-tests give. What a flag asks for is done where whorl has it; otherwise
// the header of the table says that the flag has no effect.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "perf/common/options.h"

namespace perf {

/// Values of these flags as given; 0 is nccl-tests' default of each.
struct NcclTestsFlags {
  int parallel_init = 0, graph_launches = 0, null_stream = 0, registration = 0;
  int cta_policy = 0, device_implementation = 0, device_ctas = 0;
};

/// Adds the flags to `app`; parsing writes `flags`.
void add_nccl_tests_flags(CLI::App& app, NcclTestsFlags& flags);

/// Changes `options`, whose other flags are applied already, as the flags say, and adds a note for
/// each one without an effect. `alloc_given` says whether the command line chose the buffers
/// itself. Returns a sentence if a flag is refused, else an empty text.
std::string apply(const NcclTestsFlags& flags, bool alloc_given, Options* options);

} // namespace perf
