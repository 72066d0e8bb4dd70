#pragma once

#include <string>

#include "bindings/nccl/abi.h"
#include "whorl/whorl.h"

// What the functions of this library have in common. They check what whorl does not check, find the
// place of the buffers, and call the function of whorl that has the same name.

// gcc sees that a function does not throw and wants its alias to say so; to clang it would be
// another type than the declared one.
#ifdef __clang__
#define WHORL_NCCL_ATTRIBUTES visibility("default")
#else
#define WHORL_NCCL_ATTRIBUTES visibility("default"), nothrow
#endif

/// Begins the definition of a function of the ABI: the strong pncclX, and ncclX as its weak alias,
/// which a program may define itself and call pncclX from there. The types are checked against the
/// declarations in abi.h.
#define WHORL_NCCL_DEFINE(result, name, parameters)                         \
  extern "C" __attribute__((weak, alias("p" #name), WHORL_NCCL_ATTRIBUTES)) \
  result name parameters;                                                   \
  extern "C" __attribute__((WHORL_NCCL_ATTRIBUTES)) result p##name parameters

namespace whorl_nccl {

inline whorlComm_t inner(ncclComm_t comm) noexcept { return reinterpret_cast<whorlComm_t>(comm); }
inline whorlComm_t* inner(ncclComm_t* comm) noexcept {
  return reinterpret_cast<whorlComm_t*>(comm);
}

/// The error of a call that failed here: kept for ncclGetLastError(). Returns `code`.
ncclResult_t fail(ncclResult_t code, const std::string& sentence) noexcept;
/// The outcome of a call of whorl; an error is kept, spelt with the names of NCCL.
ncclResult_t report(whorlResult_t result) noexcept;
/// A function that does not exist on host memory. ncclInvalidUsage.
ncclResult_t refuse(const char* function, const char* reason) noexcept;

/// What is known about the group of the calling thread besides what whorl knows.
struct Group {
  int depth = 0;
  bool failed = false;              ///< a call has been refused, here or by whorl
  ncclResult_t found = ncclSuccess; ///< the first refusal, if it was here
  std::string sentence;
};
Group& group() noexcept;
/// An error of a call that was found here, in a group that may be open: the group will report it
/// and issue nothing.
ncclResult_t fail_in_group(ncclResult_t code, const std::string& sentence) noexcept;
/// Lets the open group end without issuing its calls.
void spoil_group() noexcept;

} // namespace whorl_nccl
