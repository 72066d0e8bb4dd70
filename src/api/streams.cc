// Host streams: their events and callbacks.
#include <utility>

#include "api/group.h"
#include "api/support.h"
#include "engine/host_stream.h"
#include "engine/stream_event.h"

using namespace whorl;       // NOLINT: this file is the bridge between the two worlds
using namespace whorl::capi; // NOLINT

namespace {

/// Finds a stream of the host; `remedy` says what to do with a stream of a device.
Status check_host_stream(const char* function, whorlStream_t handle, const char* remedy,
                         std::shared_ptr<HostStream>& stream) {
  stream = find_stream(handle);
  if (stream != nullptr) return {};
  return invalid(function, fmt::format("stream is {} a stream of whorlStreamCreate() that still "
                                       "exists; {}",
                                       handle == nullptr ? "NULL, not" : "not", remedy));
}

Status check_event(const char* function, whorlEvent_t handle, std::shared_ptr<StreamEvent>& event) {
  event = find_event(handle);
  if (event != nullptr) return {};
  return invalid(function, fmt::format("event is {} an event of whorlEventCreate() that still "
                                       "exists",
                                       handle == nullptr ? "NULL, not" : "not"));
}

/// Returns nanoseconds; UINT64_MAX, which stands for no limit, for a negative number.
std::uint64_t nanoseconds(std::int64_t ms) noexcept {
  constexpr std::int64_t kNsPerMs = 1'000'000;
  if (ms < 0 || ms > INT64_MAX / kNsPerMs) return UINT64_MAX;
  return static_cast<std::uint64_t>(ms * kNsPerMs);
}

/// Calls a callback of the program. Neither an exception nor an open group leaves it.
Status call(void (*callback)(void*, whorlResult_t), void* data, const Status& before) noexcept {
  const Group::CallbackScope scope;
  const auto thrown = [](std::string_view what) {
    return without_exceptions([=] {
      return Status::error(Code::kInternalError,
                           fmt::format("a callback of a stream has thrown {}", what));
    });
  };
  if (!before.ok()) {
    try {
      last_error() = before.message();
    } catch (...) { // the callback has to be called nevertheless
      last_error().clear();
    }
  }
  try {
    callback(data, static_cast<whorlResult_t>(before.code()));
  } catch (const std::exception& error) {
    return thrown(error.what());
  } catch (...) {
    return thrown("something that is no std::exception");
  }
  return {};
}

} // namespace

extern "C" {

whorlResult_t whorlStreamCreate(whorlStream_t* stream) {
  return guarded("whorlStreamCreate", [&]() -> Status {
    if (stream == nullptr) return invalid("whorlStreamCreate", "stream is NULL");
    const auto created = create_stream();
    if (!created.ok()) return created.status();
    *stream = static_cast<whorlStream_t>(*created);
    return {};
  });
}

whorlResult_t whorlStreamSynchronize(whorlStream_t stream) {
  return guarded("whorlStreamSynchronize", [&]() -> Status {
    WHORL_TRY(check_may_wait("whorlStreamSynchronize"));
    const auto found = find_stream(stream);
    if (found == nullptr) return invalid("whorlStreamSynchronize", "stream does not exist");
    return found->synchronize();
  });
}

whorlResult_t whorlStreamQuery(whorlStream_t stream) {
  const auto found = find_stream(stream);
  if (found != nullptr && !found->idle()) {
    found->hurry();
    return whorlInProgress;
  }
  return guarded("whorlStreamQuery", [&]() -> Status {
    if (found == nullptr) return invalid("whorlStreamQuery", "stream does not exist");
    return found->error();
  });
}

whorlResult_t whorlStreamDestroy(whorlStream_t stream) {
  return guarded("whorlStreamDestroy", [&]() -> Status {
    WHORL_TRY(check_may_wait("whorlStreamDestroy"));
    if (stream == nullptr) return {};
    const auto found = find_stream(stream);
    if (found == nullptr) return invalid("whorlStreamDestroy", "stream does not exist");
    Status status;
    do { // callbacks may queue more
      status = found->synchronize();
    } while (!found->idle());
    found->stop();
    destroy_stream(stream);
    return status;
  });
}

whorlResult_t whorlStreamAddCallback(whorlStream_t stream,
                                     void (*callback)(void* data, whorlResult_t status),
                                     void* data) {
  constexpr const char* kName = "whorlStreamAddCallback";
  return guarded(kName, [&]() -> Status {
    if (callback == nullptr) return invalid(kName, "callback is NULL");
    if (stream == nullptr) return call(callback, data, {});
    std::shared_ptr<HostStream> found;
    WHORL_TRY(
        check_host_stream(kName, stream, "for a cudaStream_t call cudaLaunchHostFunc()", found));
    mark_used(); // a child of fork() has no thread for callbacks
    return HostStream::add_callback(
               found, [=](const Status& before) { return call(callback, data, before); })
        .with_context(kName);
  });
}

whorlResult_t whorlStreamWaitEvent(whorlStream_t stream, whorlEvent_t event) {
  constexpr const char* kName = "whorlStreamWaitEvent";
  return guarded(kName, [&]() -> Status {
    std::shared_ptr<HostStream> found;
    std::shared_ptr<StreamEvent> awaited;
    WHORL_TRY(check_host_stream(kName, stream,
                                "whorlEventWait() makes this thread wait, also before it queues "
                                "something in a cudaStream_t",
                                found));
    WHORL_TRY(check_event(kName, event, awaited));
    return found->wait_for(found, awaited->point()).with_context(kName);
  });
}

whorlResult_t whorlEventCreate(whorlEvent_t* event) {
  return guarded("whorlEventCreate", [&]() -> Status {
    if (event == nullptr) return invalid("whorlEventCreate", "event is NULL");
    const auto created = create_event();
    if (!created.ok()) return created.status();
    *event = static_cast<whorlEvent_t>(*created);
    return {};
  });
}

whorlResult_t whorlEventRecord(whorlEvent_t event, whorlStream_t stream) {
  constexpr const char* kName = "whorlEventRecord";
  return guarded(kName, [&]() -> Status {
    std::shared_ptr<StreamEvent> found;
    std::shared_ptr<HostStream> recorded;
    WHORL_TRY(check_event(kName, event, found));
    if (stream != nullptr) {
      WHORL_TRY(check_host_stream(kName, stream,
                                  "for a cudaStream_t call cudaEventRecord() with an event of CUDA",
                                  recorded));
    }
    found->record(std::move(recorded));
    return {};
  });
}

whorlResult_t whorlEventQuery(whorlEvent_t event) {
  const auto known = find_event(event);
  const StreamPoint at = known != nullptr ? known->point() : StreamPoint();
  if (at.stream != nullptr && !at.stream->has_completed(at.number)) {
    at.stream->hurry();
    return whorlInProgress;
  }
  return guarded("whorlEventQuery", [&]() -> Status {
    std::shared_ptr<StreamEvent> found;
    WHORL_TRY(check_event("whorlEventQuery", event, found));
    return at.stream != nullptr ? at.stream->error(at.number) : Status();
  });
}

whorlResult_t whorlEventWait(whorlEvent_t event, int64_t timeout_ms) {
  return guarded("whorlEventWait", [&]() -> Status {
    if (timeout_ms != 0) WHORL_TRY(check_may_wait("whorlEventWait"));
    std::shared_ptr<StreamEvent> found;
    WHORL_TRY(check_event("whorlEventWait", event, found));
    return found->wait(nanoseconds(timeout_ms));
  });
}

whorlResult_t whorlEventDestroy(whorlEvent_t event) {
  return guarded("whorlEventDestroy", [&]() -> Status {
    if (event == nullptr || destroy_event(event)) return {};
    std::shared_ptr<StreamEvent> found;
    return check_event("whorlEventDestroy", event, found);
  });
}

} // extern "C"
