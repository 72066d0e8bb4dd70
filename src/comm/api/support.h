#pragma once

#include <fmt/core.h>

#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "base/status.h"
#include "comm/handle.h"
#include "comm/stream.h"
#include "whorl/whorl.h"

// What the functions of the C API have in common. They check handles and arguments, then call the
// classes behind them; nothing else in whorl is visible outside the library.
namespace whorl::capi {

/// The last error of this thread, for whorlGetLastError(NULL).
std::string& last_error() noexcept;

/// Keeps the error of a call for whorlGetLastError() and turns it into a result code.
whorlResult_t report(const Status& status);

/// Whether this is the forked child of a process that had used the library.
extern std::atomic<bool> in_forked_child;
/// kInvalidUsage if it is.
Status check_not_forked(const char* function);
/// From now on a forked child must not use the library: its threads and connections are the
/// parent's.
void mark_used();

Status invalid(const char* function, std::string_view what);

/// A handle that was created and not destroyed.
Status check_handle(const char* function, const whorlComm* handle);
/// A handle whose communicator exists.
Status check_created(const char* function, const whorlComm* handle);
/// A handle whose communicator exists and may be used.
Status check_ready(const char* function, const whorlComm* handle);

/// A call of a collective: checks it and issues it, or adds it to the open group.
whorlResult_t call_plain(const RawCall& raw, whorlComm* handle, void* stream) noexcept;

/// Finds the stream behind an argument: null for NULL.
Status check_stream(const char* function, void* argument, std::shared_ptr<Stream>& stream);
/// Where a call without a stream has buffers on a device, the default stream of that.
Status find_device_stream(const char* function, const whorlComm& handle, const Request& request,
                          std::shared_ptr<Stream>& stream);

/// Runs the body of an API function. No exception leaves the library.
template <class Body>
whorlResult_t guarded(const char* function, Body&& body) noexcept {
  const auto fail = [function](const char* what, whorlResult_t code) {
    try {
      last_error() = std::string(function) + ": " + what;
    } catch (...) {
      last_error().clear();
    }
    return code;
  };
  try {
    Status status = check_not_forked(function);
    if (status.ok()) status = body();
    return report(status);
  } catch (const std::bad_alloc&) {
    return fail("out of memory", whorlSystemError);
  } catch (const std::exception& error) {
    return fail(error.what(), whorlInternalError);
  }
}

/// The same for a function of a communicator, which is inside it all the time.
template <class Body>
whorlResult_t guarded(const char* function, whorlComm* handle, Body&& body) noexcept {
  return guarded(function, [&]() -> Status {
    const Inside inside(handle);
    return body();
  });
}

} // namespace whorl::capi
