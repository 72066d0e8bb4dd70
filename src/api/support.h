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

// Common parts of the functions of the C API, which check handles and arguments, then call the
// classes that do the work. Nothing but these functions is visible outside the library.
namespace whorl::capi {

/// Returns the last error of this thread, for whorlGetLastError(NULL).
std::string& last_error() noexcept;

/// Keeps the error of a call for whorlGetLastError() and turns it into a result code.
whorlResult_t report(const Status& status);

/// Whether this is the forked child of a process that had used the library.
extern std::atomic<bool> in_forked_child;
/// Returns kInvalidUsage in the forked child of a process that had used the library.
Status check_not_forked(const char* function);
/// Notes that this process uses the library. From now on a child that it forks must not use the
/// library, whose threads and connections stay the parent's.
void mark_used();

/// Returns an error of an argument.
Status invalid(const char* function, std::string_view what);
/// Returns such an error without the name of the function, which a caller adds.
Status invalid(std::string what);
/// Checks the address to which a function writes a new communicator.
Status check_out(const void* out, std::string_view parameter);

/// Checks that a handle was created and not destroyed.
Status check_handle(const char* function, const whorlComm* handle);
/// Checks that the communicator of a handle exists.
Status check_created(const char* function, const whorlComm* handle);
/// Checks that a communicator which exists has not been finalized.
Status check_not_finalized(const whorlComm& handle);
/// Checks that the communicator of a handle exists and may be used.
Status check_ready(const char* function, const whorlComm* handle);

/// Registers memory of a communicator, and ends a registration.
Status register_memory(const char* function, const whorlComm* comm, void* buff, std::size_t size,
                       void** handle);
Status deregister_memory(const char* function, const whorlComm* comm, void* handle);

/// Checks a call of a collective whose blocks have one size, and issues the call or adds it to the
/// open group.
whorlResult_t call_plain(const RawCall& raw, whorlComm* handle, void* stream) noexcept;

/// Finds the stream behind an argument. `stream` gets null for NULL, and for the default stream of
/// a device in a thread whose current context has no such stream.
Status check_stream(const char* function, void* argument, std::shared_ptr<Stream>& stream);
/// Finds the default stream of the device on which the request has buffers, if check_stream() has
/// found no stream; `argument` says which kind of default stream. Refuses a stream of the host
/// then.
Status find_device_stream(const char* function, const whorlComm& handle, void* argument,
                          const Request& request, std::shared_ptr<Stream>& stream);

/// Returns the status of a call that has been refused with `status`, and ends the communicator if
/// the reason is that the device of this rank is lost.
Status failed_call(whorlComm* handle, Status status);

/// Runs `body`, which adds something to the open group; if `body` fails, the group fails.
template <class Body>
Status collect(Group& group, Body&& body) {
  try {
    const Status status = body();
    if (!status.ok() && status.code() != Code::kInProgress) group.fail_group(status);
    return status;
  } catch (...) {
    group.fail_group_without_memory();
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

/// Runs the body of an API function inside a communicator (see Inside).
template <class Body>
whorlResult_t guarded(const char* function, whorlComm* handle, Body&& body) noexcept {
  return guarded(function, [&]() -> Status {
    const Inside inside(handle);
    return body();
  });
}

/// Runs the body of an API function like guarded(), for a call that a group may collect: an error
/// fails the open group.
template <class Body>
whorlResult_t collectable(const char* function, Body&& body) noexcept {
  return guarded(function, [&]() -> Status {
    return Group::open() ? collect(Group::current(), body) : body();
  });
}

/// Issues a call of an operation, or adds the call to the open group. `check` takes a Request and
/// fills it. Whatever fails, memory included, fails the group.
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
      if (call.stream == nullptr) WHORL_TRY(check_may_wait(function));
      return issue(call);
    }
    return collect(group, [&]() -> Status {
      if (Status status = check_all(); !status.ok()) return failed_call(handle, std::move(status));
      group.add(std::move(call));
      return {};
    });
  });
}

} // namespace whorl::capi
