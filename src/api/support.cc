#include "api/support.h"

#include <pthread.h>

#include <cstdlib>
#include <mutex>

#include "base/lasting.h"
#include "base/log.h"
#include "base/open_sockets.h"
#include "device/staged/stream.h"
#include "engine/host_stream.h"

namespace whorl::capi {
namespace {

static_assert(static_cast<int>(Code::kInProgress) == whorlInProgress);
static_assert(static_cast<int>(DataType::kFloat8e5m2) == whorlFloat8e5m2);
static_assert(static_cast<int>(ReduceOp::kAvg) == whorlAvg);
static_assert(static_cast<int>(DataType::kBool) == whorlBool);
static_assert(static_cast<int>(ReduceOp::kBxor) == whorlBxor);
static_assert(static_cast<int>(kNumDataTypes) == whorlNumTypes);

} // namespace

constinit std::atomic<bool> in_forked_child{false};

std::string& last_error() noexcept { return lasting_of_thread<std::string, struct LastError>(); }

whorlResult_t report(const Status& status) {
  if (status.ok()) return whorlSuccess;
  last_error() = status.message();
  if (status.code() != Code::kInProgress) log(LogLevel::kInfo, status.message());
  return static_cast<whorlResult_t>(status.code());
}

Status check_not_forked(const char* function) {
  if (!in_forked_child.load(std::memory_order_relaxed)) return {};
  return Status::error(
      Code::kInvalidUsage,
      fmt::format(
          "{}: this process was forked from one that had already used whorl; fork first, or "
          "exec a new program",
          function));
}

void mark_used() {
  static std::once_flag once;
  std::call_once(once, [] {
    keep_sockets_from_children();
    pthread_atfork(nullptr, nullptr,
                   [] { in_forked_child.store(true, std::memory_order_relaxed); });
    std::atexit([] {
      if (!in_forked_child.load(std::memory_order_relaxed)) leave_all();
    });
  });
}

Status invalid(const char* function, std::string_view what) {
  return Status::error(Code::kInvalidArgument, fmt::format("{}: {}", function, what));
}

Status invalid(std::string what) { return Status::error(Code::kInvalidArgument, std::move(what)); }

Status check_out(const void* out, std::string_view parameter) {
  if (out != nullptr) return {};
  return invalid(fmt::format("{} is NULL; pass the address of a whorlComm_t", parameter));
}

Status check_handle(const char* function, const whorlComm* handle) {
  if (handle == nullptr) return invalid(function, "comm is NULL");
  if (!exists(handle) || handle->magic.load(std::memory_order_seq_cst) != whorlComm::kAlive) {
    return invalid(function, "comm is not a communicator, or it has been destroyed");
  }
  return {};
}

Status check_created(const char* function, const whorlComm* handle) {
  WHORL_TRY(check_handle(function, handle));
  const Code created = handle->created.load(std::memory_order_acquire);
  if (created == Code::kInProgress) {
    return Status::error(Code::kInvalidUsage,
                         fmt::format("{}: comm is still being created; wait until "
                                     "whorlCommGetAsyncError reports whorlSuccess",
                                     function));
  }
  if (created != Code::kOk) return handle->error();
  return {};
}

Status check_not_finalized(const whorlComm& handle) {
  if (!handle.finalized) return {};
  return Status::error(Code::kInvalidUsage,
                       "comm has been finalized; only whorlCommDestroy is allowed");
}

Status check_ready(const char* function, const whorlComm* handle) {
  WHORL_TRY(check_created(function, handle));
  return check_not_finalized(*handle).with_context(function);
}

Status check_stream(const char* function, void* argument, std::shared_ptr<Stream>& stream) {
  stream = argument != nullptr ? find_stream(argument) : nullptr;
  if (argument == nullptr || stream != nullptr) return {};
  constexpr std::string_view kUnknown =
      "stream is neither NULL nor a stream of whorlStreamCreate() that still exists";
  if (!devices_possible() || was_stream(argument)) return invalid(function, kUnknown);
  if (lacks_context(argument)) return {};
  auto device = device_stream(argument);
  if (!device.ok()) {
    WHORL_TRY(device_fault().with_context(function));
    if (device.status().code() != Code::kInvalidArgument) {
      return device.status().with_context(function);
    }
    return invalid(function, fmt::format("{}, and it is no stream of a device: {}", kUnknown,
                                         device.status().message()));
  }
  stream = *std::move(device);
  return {};
}

Status find_device_stream(const char* function, const whorlComm& handle, void* argument,
                          const Request& request, std::shared_ptr<Stream>& stream) {
  if (!devices_possible() || (stream != nullptr && stream->device())) return {};
  const Communicator& communicator = *handle.communicator;
  const void* const buffer = device_buffer(request, communicator.rank(), communicator.nranks());
  if (buffer == nullptr) return {};
  if (stream != nullptr) {
    return invalid(
        function,
        "stream is one of whorlStreamCreate(), which is for host memory, but a buffer or "
        "the factor of the operator is memory of a device; pass a cudaStream_t");
  }
  auto device = device_stream(argument, buffer);
  if (!device.ok()) return device.status().with_context(function);
  stream = *std::move(device);
  return {};
}

Status failed_call(whorlComm* handle, Status status) {
  if (status.code() != Code::kCudaError) return status; // also if the handle is bad
  return handle->communicator->end_if_device_is_lost(std::move(status));
}

} // namespace whorl::capi
