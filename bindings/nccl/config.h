#pragma once

#include "bindings/nccl/abi.h"
#include "whorl/whorl.h"

namespace whorl_nccl {

/// Translates the options of a program that may be older or newer than this library: no more than
/// `config->size` bytes are read, the rest counts as unset. `out` points into `config`'s strings.
/// ncclSuccess, or an error that has been reported.
ncclResult_t translate(const char* function, const ncclConfig_t& config,
                       whorlConfig_t& out) noexcept;

} // namespace whorl_nccl
