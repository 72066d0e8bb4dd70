#pragma once

#include <fmt/core.h>

#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "api/group.h"
#include "api/handle.h"
#include "base/status.h"
#include "engine/stream.h"
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

/// A call of a collective whose blocks are alike: checks it and issues it, or adds it to the open
/// group.
whorlResult_t call_plain(const RawCall& raw, whorlComm* handle, void* stream) noexcept;

/// Finds the stream behind an argument: null for NULL, and for the default stream of a device in a
/// thread that has none.
Status check_stream(const char* function, void* argument, std::shared_ptr<Stream>& stream);
/// Where a call for which check_stream() has found none has buffers on a device, the default stream
/// of that which `argument` names.
Status find_device_stream(const char* function, const whorlComm& handle, void* argument,
                          const Request& request, std::shared_ptr<Stream>& stream);

/// What a call returns that has been refused with `status`: if this is because the device of this
/// rank is lost, the communicator ends.
Status failed_call(whorlComm* handle, Status status);

/// Adds something to the open group by `body`; where that fails, the group does.
template <class Body>
Status collect(Group& group, Body&& body) {
  try {
    const Status status = body();
    if (!status.ok() && status.code() != Code::kInProgress) group.spoil(status);
    return status;
  } catch (...) {
    group.spoil_without_memory();
    throw;
  }
}

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

/// A call of an operation: issues it, or adds it to the open group. `check` takes a Request and
/// fills it. Whatever fails, also memory, spoils the group.
template <class Check>
whorlResult_t check_and_issue(const char* function, whorlComm* handle, void* stream,
                              Check&& check) noexcept {
  return guarded(function, handle, [&]() -> Status {
    Group& group = Group::current();
    Call call{.handle = handle, .request = {}, .stream = nullptr};
    const auto check_all = [&]() -> Status {
      WHORL_TRY(check_ready(function, handle));
      WHORL_TRY(check_stream(function, stream, call.stream));
      WHORL_TRY(check(call.request));
      return find_device_stream(function, *handle, stream, call.request, call.stream);
    };
    if (!group.open()) {
      if (Status status = check_all(); !status.ok()) return failed_call(handle, std::move(status));
      return issue({&call, 1});
    }
    return collect(group, [&]() -> Status {
      if (Status status = check_all(); !status.ok()) return failed_call(handle, std::move(status));
      group.add(std::move(call));
      return {};
    });
  });
}

} // namespace whorl::capi
