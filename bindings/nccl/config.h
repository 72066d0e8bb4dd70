#pragma once

#include "bindings/nccl/abi.h"
#include "whorl/whorl.h"

namespace whorl_nccl {

/// Time that ranks may wait for each other unless WHORL_TIMEOUT_MS is set. NCCL has no timeout, so
/// programs let ranks wait for long (while rank 0 writes a checkpoint, say).
inline constexpr int kTimeoutMs = 30 * 60 * 1000;

/// Returns the configuration for a program without options.
whorlConfig_t default_config() noexcept;

/// Translates the options of a program that may be older or newer than this library: reads at most
/// `config.size` bytes and takes the rest as unset. The result points into `config`'s strings.
/// whorl checks it: a rank with wrong options has to tell the others, and the library knows where
/// they meet.
whorlConfig_t translate(const ncclConfig_t& config) noexcept;

} // namespace whorl_nccl
