#pragma once

#include <string>
#include <string_view>

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

namespace detail {
ncclResult_t keep(ncclResult_t code, std::string_view sentence) noexcept;
ncclResult_t keep_in_group(ncclResult_t code, std::string_view sentence) noexcept;

inline void append(std::string& text, std::string_view part) { text += part; }
inline void append(std::string& text, int number) { text += std::to_string(number); }
template <class... Parts>
ncclResult_t join(ncclResult_t (*keep)(ncclResult_t, std::string_view) noexcept, ncclResult_t code,
                  const Parts&... parts) noexcept {
  try {
    std::string sentence;
    (append(sentence, parts), ...);
    return keep(code, sentence);
  } catch (...) {
    return keep(code, "out of memory");
  }
}
} // namespace detail

/// The error of a call that failed here, kept for ncclGetLastError(): words and numbers that make
/// one sentence, or a shorter one where there is no memory for it. Returns `code`.
template <class... Parts>
ncclResult_t fail(ncclResult_t code, const Parts&... parts) noexcept {
  return detail::join(detail::keep, code, parts...);
}
/// The same for a call that may be part of a group: the group will report the error and issue
/// nothing.
template <class... Parts>
ncclResult_t fail_in_group(ncclResult_t code, const Parts&... parts) noexcept {
  return detail::join(detail::keep_in_group, code, parts...);
}
/// Runs what may run out of memory.
template <class Body>
ncclResult_t guarded(const char* function, Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return fail_in_group(ncclSystemError, function, ": out of memory");
  }
}
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
/// Lets the open group end without issuing its calls.
void spoil_group() noexcept;

} // namespace whorl_nccl
