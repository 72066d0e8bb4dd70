#pragma once

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <exception>

#include "whorl/whorl.h"

namespace whorl_torch {

/// Throws an exception that becomes the Python class of `Error`: c10::ValueError, DistBackendError
/// …
template <class Error, class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Error({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, c10::str(parts...));
}
/// Returns what fail<c10::DistBackendError>() would throw.
template <class... Parts>
std::exception_ptr backend_error(const Parts&... parts) {
  return std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, c10::str(parts...)));
}
/// Returns the error of an operation that is issued after the end of its group.
inline std::exception_ptr shut_down_error() {
  return backend_error("whorl: the process group has been shut down");
}

/// Throws whorl's sentence if `result` is an error: ValueError for an argument (the communicator
/// stays usable), DistNetworkError where another rank is lost, otherwise DistBackendError.
void check(whorlResult_t result, whorlComm_t comm = nullptr);
/// Returns what check() would throw for `state`, which whorlCommGetAsyncError() has reported of
/// `comm`.
std::exception_ptr error_of(whorlComm_t comm, whorlResult_t state);

} // namespace whorl_torch
