#pragma once

#include <string>
#include <string_view>

#include "bindings/nccl/abi.h"
#include "whorl/whorl.h"

// Common parts of this library's functions. Each function checks what whorl does not check, finds
// the location of the buffers, and calls the function of whorl that has the same name.

// gcc notices that a function does not throw and requires nothrow on its alias; for clang the alias
// would then differ in type from its declaration.
#ifdef __clang__
#define WHORL_NCCL_ATTRIBUTES visibility("default")
#else
#define WHORL_NCCL_ATTRIBUTES visibility("default"), nothrow
#endif

/// Begins the definition of a function of the ABI: the strong pncclX, and ncclX as its weak alias.
/// A program may define ncclX itself and call pncclX from there. The types are checked against the
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

namespace detail {
ncclResult_t record_error(ncclResult_t code, std::string_view sentence) noexcept;
ncclResult_t record_in_group(ncclResult_t code, std::string_view sentence) noexcept;

inline void append(std::string& text, std::string_view part) { text += part; }
inline void append(std::string& text, int number) { text += std::to_string(number); }
template <class... Parts>
ncclResult_t join(ncclResult_t (*record)(ncclResult_t, std::string_view) noexcept,
                  ncclResult_t code, const Parts&... parts) noexcept {
  try {
    std::string sentence;
    (append(sentence, parts), ...);
    return record(code, sentence);
  } catch (...) {
    return record(code, "out of memory");
  }
}
} // namespace detail

/// Stores the error of a call for ncclGetLastError() and returns `code`. The parts, words and
/// numbers, make one sentence; without memory for it, a shorter sentence is stored.
template <class... Parts>
ncclResult_t fail(ncclResult_t code, const Parts&... parts) noexcept {
  return detail::join(detail::record_error, code, parts...);
}
/// Stores the error of a call that may be part of a group and returns `code`; the group will then
/// report the error and issue no calls.
template <class... Parts>
ncclResult_t fail_in_group(ncclResult_t code, const Parts&... parts) noexcept {
  return detail::join(detail::record_in_group, code, parts...);
}
/// Runs `body`, and turns an exception into the error "out of memory".
template <class Body>
ncclResult_t guarded(const char* function, Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return fail_in_group(ncclSystemError, function, ": out of memory");
  }
}
/// Returns the outcome of a call of whorl; an error is stored with the names of NCCL.
ncclResult_t report(whorlResult_t result) noexcept;
/// Returns ncclInvalidUsage for a function that does not exist on host memory, and stores `reason`.
ncclResult_t refuse(const char* function, const char* reason) noexcept;

/// State of the calling thread's group, in addition to whorl's own.
struct Group {
  int depth = 0;
  bool failed = false;              ///< true if a call has been refused, here or by whorl
  ncclResult_t found = ncclSuccess; ///< code of the first refusal, if it was here
  std::string sentence;
};
Group& group() noexcept;
/// Marks the open group as failed, so that it ends without issuing its calls.
void fail_group() noexcept;

} // namespace whorl_nccl
