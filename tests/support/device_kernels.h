#pragma once

// Execution of the device kernels without a device, for tests that are linked with one of two ways:
// device_kernels_on_host.cc runs the kernels' text as code of the host, device_kernels_as_ptx.cc
// what nvcc made of it.

#include <string>

#include "gpu/program.h"
#include "gpu/work.h"

namespace whorl::test {

/// Runs a grid of a kernel of combine.cu.
void run_combine(const std::string& kernel, const gpu::Work& work, const gpu::Grid& grid);
/// Runs a grid of a kernel of interpret.cu or exchange.cu with all its ranks but `absent` (−1:
/// all).
void run_interpreter(const std::string& kernel, const gpu::Launch& launch, unsigned threads,
                     int absent);

} // namespace whorl::test
