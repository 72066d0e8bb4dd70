#pragma once

// The one place that names the library under measurement. All perf programs spell its functions,
// types and enumerators XCCL(Name), so that the same source also measures NCCL: build with
// WHORL_PERF_NCCL, and give this file the few things that NCCL lacks (barrier, launcher
// environment, host streams).
#ifdef WHORL_PERF_NCCL
#include <nccl.h>
#define XCCL(name) nccl##name
#else
#include "whorl/whorl.h"
#define XCCL(name) whorl##name
#endif

#include <stdexcept>
#include <string>

namespace perf {

using Comm = XCCL(Comm_t);
using DataType = XCCL(DataType_t);
using RedOp = XCCL(RedOp_t);
using UniqueId = XCCL(UniqueId);
using Result = XCCL(Result_t);
using Config = XCCL(Config_t);

/// Version of the header that the programs were built with, as the library counts: for whorl,
/// major·10000 + minor·100 + patch.
inline int library_version() {
#ifdef WHORL_PERF_NCCL
  return NCCL_VERSION_CODE;
#else
  return WHORL_VERSION_CODE;
#endif
}

/// What ends a rank early. The message is a full sentence. Perf programs are the only users:
/// nothing of this crosses an API.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws Failure with the library's own sentence unless `result` is success.
void check(Result result, Comm comm, const char* call);

} // namespace perf
