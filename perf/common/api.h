#pragma once

// Names of the library under measurement, which no other file spells. All perf programs write its
// functions, types and enumerators as XCCL(Name), so that the same source also measures NCCL: build
// with WHORL_PERF_NCCL, and add to this file the few functions that NCCL lacks (barrier, launcher
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

/// Returns the version of the header that the programs were built with, in the library's own
/// encoding: for whorl, major·10000 + minor·100 + patch.
inline int library_version() {
#ifdef WHORL_PERF_NCCL
  return NCCL_VERSION_CODE;
#else
  return WHORL_RELEASE_CODE;
#endif
}

/// Error that ends a rank early. The message is a full sentence. Only perf programs throw Failure;
/// it crosses no API.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Failure by what the command line asks for.
struct BadCommand : Failure {
  static constexpr int kStatus = 2; ///< exit status
  using Failure::Failure;
};

/// Throws Failure with the library's own sentence unless `result` is success.
void check(Result result, Comm comm, const char* call);

} // namespace perf
