#pragma once

#include "bindings/nccl/abi.h"
#include "whorl/whorl.h"

namespace whorl_nccl {

/// How long ranks may wait for each other where WHORL_TIMEOUT_MS does not say: NCCL has no timeout,
/// so a program may leave a rank behind for long (rank 0 writes a checkpoint, say).
inline constexpr int kTimeoutMs = 30 * 60 * 1000;

/// What a program without options gets.
whorlConfig_t default_config() noexcept;

/// Translates the options of a program that may be older or newer than this library: no more than
/// `config->size` bytes are read, the rest counts as unset. `out` points into `config`'s strings.
/// ncclSuccess, or an error that has been reported.
ncclResult_t translate(const char* function, const ncclConfig_t& config,
                       whorlConfig_t& out) noexcept;

} // namespace whorl_nccl
