// The C API: checks handles and arguments, then calls the classes behind them. Nothing else in
// whorl is visible outside the library, and no exception leaves a function of this file.
#include <fmt/core.h>
#include <pthread.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <string>

#include "base/log.h"
#include "base/params.h"
#include "comm/check.h"
#include "comm/create.h"
#include "comm/group.h"
#include "comm/handle.h"
#include "comm/stream.h"
#include "whorl/whorl.h"

namespace whorl {
namespace {

static_assert(static_cast<int>(Code::kInProgress) == whorlInProgress);
static_assert(static_cast<int>(DataType::kFloat8e5m2) == whorlFloat8e5m2);
static_assert(static_cast<int>(ReduceOp::kAvg) == whorlAvg);
static_assert(kNumReduceOps == whorlNumOps && kNumDataTypes == whorlNumTypes);

thread_local std::string last_error;     // of this thread
thread_local std::string returned_error; // keeps the text alive that whorlGetLastError() returned

std::atomic<bool> in_forked_child{false};

whorlResult_t report(const Status& status) {
  if (status.ok()) return whorlSuccess;
  last_error = status.message();
  log(LogLevel::kInfo, status.message());
  return static_cast<whorlResult_t>(status.code());
}

/// Runs the body of an API function: refuses in a forked child, turns exceptions into errors.
template <class Body>
whorlResult_t guarded(const char* function, Body&& body) noexcept {
  try {
    if (in_forked_child.load(std::memory_order_relaxed)) {
      return report(Status::error(
          Code::kInvalidUsage,
          fmt::format(
              "{}: this process was forked from one that had already used whorl; fork first, "
              "or exec a new program",
              function)));
    }
    return report(body());
  } catch (const std::bad_alloc&) {
    last_error.clear();
    try {
      last_error = std::string(function) + ": out of memory";
    } catch (...) {
    }
    return whorlSystemError;
  } catch (const std::exception& error) {
    try {
      last_error = std::string(function) + ": " + error.what();
    } catch (...) {
    }
    return whorlInternalError;
  }
}

Status invalid(const char* function, std::string_view what) {
  return Status::error(Code::kInvalidArgument, fmt::format("{}: {}", function, what));
}

/// From now on a forked child must not use the library: its threads and connections are the
/// parent's.
void mark_used() {
  static std::once_flag once;
  std::call_once(once,
                 [] { pthread_atfork(nullptr, nullptr, [] { in_forked_child.store(true); }); });
}

/// A call that is inside a communicator: whorlCommAbort() waits for it to leave.
class Inside {
 public:
  explicit Inside(whorlComm& handle) noexcept : handle_(handle) { handle_.inside.fetch_add(1); }
  ~Inside() { handle_.inside.fetch_sub(1); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  whorlComm& handle_;
};

Status check_handle(const char* function, const whorlComm* handle) {
  if (handle == nullptr) return invalid(function, "comm is NULL");
  if (handle->magic.load(std::memory_order_relaxed) != whorlComm::kAlive) {
    return invalid(function, "comm is not a communicator, or it has been destroyed");
  }
  return {};
}

/// A handle whose communicator exists and may be used.
Status check_ready(const char* function, const whorlComm* handle) {
  WHORL_TRY(check_handle(function, handle));
  const Code created = handle->created.load(std::memory_order_acquire);
  if (created == Code::kInProgress) {
    return Status::error(Code::kInvalidUsage,
                         fmt::format("{}: comm is still being created; wait until "
                                     "whorlCommGetAsyncError reports whorlSuccess",
                                     function));
  }
  if (created != Code::kOk) return handle->error();
  if (handle->finalized) {
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("{}: comm has been finalized; only whorlCommDestroy is allowed", function));
  }
  return {};
}

Status check_ranks(const char* function, const void* out, int nranks, int rank) {
  if (out == nullptr) return invalid(function, "comm is NULL; pass the address of a whorlComm_t");
  constexpr int kMaxRanks = 32768;
  if (nranks < 1 || nranks > kMaxRanks) {
    return invalid(function,
                   fmt::format("nranks is {}; it must be from 1 to {}", nranks, kMaxRanks));
  }
  if (rank < 0 || rank >= nranks) {
    return invalid(function, fmt::format("rank is {}; it must be from 0 to {}", rank, nranks - 1));
  }
  return {};
}

/// Creates through `meet`, at once or as part of the open group.
Status create_or_collect(const char* function, whorlComm_t* out, whorlConfig_t* config,
                         std::function<Result<Meeting>()> meet) {
  mark_used();
  *out = nullptr;
  const auto options = make_options(config);
  if (!options.ok()) return options.status().with_context(function);
  const bool wait = blocking(config);
  auto job = [out, options = *options, wait, meet = std::move(meet), function]() -> Status {
    const Status status = create(out, options, wait, meet);
    if (!status.ok()) return status.with_context(function);
    if (!wait) {
      return Status::error(Code::kInProgress,
                           "the communicator is being created; poll whorlCommGetAsyncError");
    }
    return {};
  };
  if (!Group::current().open()) return job();
  Group::current().add_job(std::move(job));
  return {};
}

/// Checks a call and issues it, or adds it to the open group.
whorlResult_t call(const RawCall& raw, whorlComm_t handle, void* stream) noexcept {
  return guarded(raw.function, [&]() -> Status {
    Group& group = Group::current();
    const auto check = [&]() -> Result<Request> {
      WHORL_TRY(check_ready(raw.function, handle));
      if (stream != nullptr && find_stream(stream) == nullptr) {
        return invalid(raw.function,
                       "stream is neither NULL nor a stream of whorlStreamCreate() that still "
                       "exists");
      }
      return check_call(raw, *handle->communicator);
    };
    const auto request = check();
    if (!request.ok()) {
      if (group.open()) group.spoil(request.status());
      return request.status();
    }
    const Call checked{.handle = handle, .request = *request, .stream = stream};
    if (group.open()) {
      group.add(checked);
      return {};
    }
    const Inside inside(*handle);
    return issue({&checked, 1});
  });
}

/// Waits until no other thread is inside a call on the handle.
void wait_until_empty(const whorlComm& handle) {
  ClockNapper napper;
  const Verdict nobody;
  const WaitPolicy policy{.timeout_ns = 10'000'000'000, .spins = 100};
  static_cast<void>(
      wait_until([&] { return handle.inside.load() == 0 ? Progress::kDone : Progress::kIdle; },
                 policy, nobody, napper));
}

void free_handle(whorlComm* handle) {
  handle->magic.store(whorlComm::kDead);
  if (handle->creator.joinable()) handle->creator.join();
  delete handle;
}

} // namespace
} // namespace whorl

using namespace whorl; // NOLINT: this file is the bridge between the two worlds

extern "C" {

whorlResult_t whorlGetVersion(int* version) {
  return guarded("whorlGetVersion", [&]() -> Status {
    if (version == nullptr) return invalid("whorlGetVersion", "version is NULL");
    *version = WHORL_VERSION_CODE;
    return {};
  });
}

const char* whorlGetErrorString(whorlResult_t result) {
  switch (result) {
    case whorlSuccess:
      return "no error";
    case whorlUnhandledCudaError:
      return "a CUDA call failed";
    case whorlSystemError:
      return "a system call failed";
    case whorlInternalError:
      return "internal error";
    case whorlInvalidArgument:
      return "invalid argument";
    case whorlInvalidUsage:
      return "invalid usage";
    case whorlRemoteError:
      return "another rank failed or cannot be reached";
    case whorlInProgress:
      return "in progress";
    case whorlNumResults:
      break;
  }
  return "unknown result code";
}

const char* whorlGetLastError(whorlComm_t comm) {
  try {
    returned_error = last_error;
    if (comm != nullptr && comm->magic.load() == whorlComm::kAlive) {
      Status status = comm->error();
      if (status.ok() && comm->created.load(std::memory_order_acquire) == Code::kOk) {
        status = comm->communicator->verdict().status();
      }
      returned_error = status.message();
    }
    return returned_error.c_str();
  } catch (...) {
    return "out of memory";
  }
}

whorlResult_t whorlCommInitAll(whorlComm_t* comms, int ndev, const int* devlist) {
  static_cast<void>(devlist);
  return guarded("whorlCommInitAll", [&]() -> Status {
    WHORL_TRY(check_ranks("whorlCommInitAll", comms, ndev, 0));
    mark_used();
    const auto options = make_options(nullptr);
    if (!options.ok()) return options.status();
    return create_all(comms, ndev, *options).with_context("whorlCommInitAll");
  });
}

whorlResult_t whorlCommSplit(whorlComm_t comm, int color, int key, whorlComm_t* newcomm,
                             whorlConfig_t* config) {
  return guarded("whorlCommSplit", [&]() -> Status {
    WHORL_TRY(check_ready("whorlCommSplit", comm));
    if (newcomm == nullptr) return invalid("whorlCommSplit", "newcomm is NULL");
    if (color < 0 && color != WHORL_SPLIT_NOCOLOR) {
      return invalid("whorlCommSplit", fmt::format("color is {}; it must not be negative, or be "
                                                   "WHORL_SPLIT_NOCOLOR ({})",
                                                   color, WHORL_SPLIT_NOCOLOR));
    }
    *newcomm = nullptr;
    Options options = comm->communicator->options();
    if (config != nullptr) {
      auto given = make_options(config);
      if (!given.ok()) return given.status();
      options = *std::move(given);
    }
    auto job = [=]() -> Status {
      const Inside inside(*comm);
      Status status =
          create_split(newcomm, *comm, color, key, options)
              .with_context(fmt::format("whorlCommSplit on rank {}", comm->communicator->rank()));
      if (!status.ok()) comm->set_error(status);
      return status;
    };
    if (!Group::current().open()) return job();
    Group::current().add_job(std::move(job));
    return {};
  });
}

whorlResult_t whorlCommFinalize(whorlComm_t comm) {
  return guarded("whorlCommFinalize", [&]() -> Status {
    WHORL_TRY(check_ready("whorlCommFinalize", comm));
    const Inside inside(*comm);
    const Status status = comm->communicator->drain();
    comm->finalized = true;
    return status;
  });
}

whorlResult_t whorlCommDestroy(whorlComm_t comm) {
  return guarded("whorlCommDestroy", [&]() -> Status {
    if (comm == nullptr) return {};
    WHORL_TRY(check_handle("whorlCommDestroy", comm));
    if (comm->creator.joinable()) comm->creator.join();
    Status status;
    if (comm->communicator != nullptr && !comm->finalized) {
      status = comm->communicator->drain();
    }
    free_handle(comm);
    return {};
  });
}

whorlResult_t whorlCommAbort(whorlComm_t comm) {
  return guarded("whorlCommAbort", [&]() -> Status {
    if (comm == nullptr) return {};
    WHORL_TRY(check_handle("whorlCommAbort", comm));
    if (comm->creator.joinable()) comm->creator.join();
    if (comm->communicator != nullptr) {
      Communicator& communicator = *comm->communicator;
      communicator.abort(
          Status::error(Code::kRemoteError,
                        fmt::format("{} has called whorlCommAbort",
                                    communicator.membership().describe(communicator.rank()))));
      wait_until_empty(*comm);
      static_cast<void>(communicator.drain());
    }
    free_handle(comm);
    return {};
  });
}

whorlResult_t whorlCommGetAsyncError(whorlComm_t comm, whorlResult_t* asyncError) {
  return guarded("whorlCommGetAsyncError", [&]() -> Status {
    WHORL_TRY(check_handle("whorlCommGetAsyncError", comm));
    if (asyncError == nullptr) return invalid("whorlCommGetAsyncError", "asyncError is NULL");
    const Code created = comm->created.load(std::memory_order_acquire);
    const Code code = created == Code::kOk ? comm->communicator->state().code() : created;
    *asyncError = static_cast<whorlResult_t>(code);
    return {};
  });
}

whorlResult_t whorlCommCount(const whorlComm_t comm, int* count) {
  return guarded("whorlCommCount", [&]() -> Status {
    WHORL_TRY(check_ready("whorlCommCount", comm));
    if (count == nullptr) return invalid("whorlCommCount", "count is NULL");
    *count = comm->communicator->nranks();
    return {};
  });
}

whorlResult_t whorlCommCuDevice(const whorlComm_t comm, int* device) {
  return guarded("whorlCommCuDevice", [&]() -> Status {
    WHORL_TRY(check_ready("whorlCommCuDevice", comm));
    if (device == nullptr) return invalid("whorlCommCuDevice", "device is NULL");
    *device = -1;
    return {};
  });
}

whorlResult_t whorlCommUserRank(const whorlComm_t comm, int* rank) {
  return guarded("whorlCommUserRank", [&]() -> Status {
    WHORL_TRY(check_ready("whorlCommUserRank", comm));
    if (rank == nullptr) return invalid("whorlCommUserRank", "rank is NULL");
    *rank = comm->communicator->rank();
    return {};
  });
}

whorlResult_t whorlGroupStart(void) {
  return guarded("whorlGroupStart", []() -> Status {
    Group::current().start();
    return {};
  });
}

whorlResult_t whorlGroupEnd(void) {
  return guarded("whorlGroupEnd", [] { return Group::current().end(); });
}

whorlResult_t whorlAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                             whorlDataType_t datatype, whorlRedOp_t op, whorlComm_t comm,
                             void* stream) {
  return call({"whorlAllReduce", Collective::kAllReduce, sendbuff, recvbuff, count, datatype, op},
              comm, stream);
}

whorlResult_t whorlReduce(const void* sendbuff, void* recvbuff, size_t count,
                          whorlDataType_t datatype, whorlRedOp_t op, int root, whorlComm_t comm,
                          void* stream) {
  return call({"whorlReduce", Collective::kReduce, sendbuff, recvbuff, count, datatype, op, root},
              comm, stream);
}

whorlResult_t whorlBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                             whorlDataType_t datatype, int root, whorlComm_t comm, void* stream) {
  return call({"whorlBroadcast", Collective::kBroadcast, sendbuff, recvbuff, count, datatype,
               whorlSum, root},
              comm, stream);
}

whorlResult_t whorlBcast(void* buff, size_t count, whorlDataType_t datatype, int root,
                         whorlComm_t comm, void* stream) {
  return call({"whorlBcast", Collective::kBroadcast, buff, buff, count, datatype, whorlSum, root},
              comm, stream);
}

whorlResult_t whorlReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                 whorlDataType_t datatype, whorlRedOp_t op, whorlComm_t comm,
                                 void* stream) {
  return call({"whorlReduceScatter", Collective::kReduceScatter, sendbuff, recvbuff, recvcount,
               datatype, op},
              comm, stream);
}

whorlResult_t whorlAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                             whorlDataType_t datatype, whorlComm_t comm, void* stream) {
  return call({"whorlAllGather", Collective::kAllGather, sendbuff, recvbuff, sendcount, datatype},
              comm, stream);
}

whorlResult_t whorlAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                            whorlDataType_t datatype, whorlComm_t comm, void* stream) {
  return call({"whorlAlltoAll", Collective::kAllToAll, sendbuff, recvbuff, count, datatype}, comm,
              stream);
}

whorlResult_t whorlGather(const void* sendbuff, void* recvbuff, size_t count,
                          whorlDataType_t datatype, int root, whorlComm_t comm, void* stream) {
  return call(
      {"whorlGather", Collective::kGather, sendbuff, recvbuff, count, datatype, whorlSum, root},
      comm, stream);
}

whorlResult_t whorlScatter(const void* sendbuff, void* recvbuff, size_t count,
                           whorlDataType_t datatype, int root, whorlComm_t comm, void* stream) {
  return call(
      {"whorlScatter", Collective::kScatter, sendbuff, recvbuff, count, datatype, whorlSum, root},
      comm, stream);
}

whorlResult_t whorlBarrier(whorlComm_t comm, void* stream) {
  return call({"whorlBarrier", Collective::kBarrier}, comm, stream);
}

whorlResult_t whorlSend(const void* sendbuff, size_t count, whorlDataType_t datatype, int peer,
                        whorlComm_t comm, void* stream) {
  return call({"whorlSend", Collective::kSend, sendbuff, nullptr, count, datatype, whorlSum, peer},
              comm, stream);
}

whorlResult_t whorlRecv(void* recvbuff, size_t count, whorlDataType_t datatype, int peer,
                        whorlComm_t comm, void* stream) {
  return call({"whorlRecv", Collective::kRecv, nullptr, recvbuff, count, datatype, whorlSum, peer},
              comm, stream);
}

whorlResult_t whorlRedOpCreatePreMulSum(whorlRedOp_t* op, void* scalar, whorlDataType_t datatype,
                                        whorlScalarResidence_t residence, whorlComm_t comm) {
  constexpr const char* kName = "whorlRedOpCreatePreMulSum";
  return guarded(kName, [&]() -> Status {
    WHORL_TRY(check_ready(kName, comm));
    if (op == nullptr) return invalid(kName, "op is NULL");
    if (scalar == nullptr) return invalid(kName, "scalar is NULL");
    const int type = datatype;
    if (type < 0 || type >= kNumDataTypes) {
      return invalid(kName, fmt::format("datatype is {}, which is none", type));
    }
    const int where = residence;
    if (where != whorlScalarDevice && where != whorlScalarHostImmediate) {
      return invalid(kName, fmt::format("residence is {}; use whorlScalarHostImmediate ({}) or "
                                        "whorlScalarDevice ({})",
                                        where, static_cast<int>(whorlScalarHostImmediate),
                                        static_cast<int>(whorlScalarDevice)));
    }
    Communicator::Scale scale{.type = static_cast<DataType>(type),
                              .source = where == whorlScalarDevice ? scalar : nullptr,
                              .value = {}};
    if (scale.source == nullptr) std::memcpy(scale.value.data(), scalar, size_of(scale.type));
    *op = static_cast<whorlRedOp_t>(comm->communicator->add_scale(scale));
    return {};
  });
}

whorlResult_t whorlRedOpDestroy(whorlRedOp_t op, whorlComm_t comm) {
  return guarded("whorlRedOpDestroy", [&]() -> Status {
    WHORL_TRY(check_ready("whorlRedOpDestroy", comm));
    const int number = op;
    if (number >= 0 && number < kNumReduceOps) {
      return invalid("whorlRedOpDestroy",
                     fmt::format("op {} is built in and cannot be destroyed", number));
    }
    if (!comm->communicator->remove_scale(number)) {
      return invalid("whorlRedOpDestroy",
                     fmt::format("op {} is not an operator of this communicator", number));
    }
    return {};
  });
}

whorlResult_t whorlStreamCreate(whorlStream_t* stream) {
  return guarded("whorlStreamCreate", [&]() -> Status {
    if (stream == nullptr) return invalid("whorlStreamCreate", "stream is NULL");
    *stream = static_cast<whorlStream_t>(create_stream());
    return {};
  });
}

whorlResult_t whorlStreamSynchronize(whorlStream_t stream) {
  return guarded("whorlStreamSynchronize", [&]() -> Status {
    const auto found = find_stream(stream);
    if (found == nullptr) return invalid("whorlStreamSynchronize", "stream does not exist");
    return found->synchronize();
  });
}

whorlResult_t whorlStreamQuery(whorlStream_t stream) {
  const auto found = find_stream(stream);
  if (found != nullptr && !found->idle()) return whorlInProgress;
  return guarded("whorlStreamQuery", [&]() -> Status {
    if (found == nullptr) return invalid("whorlStreamQuery", "stream does not exist");
    return found->error();
  });
}

whorlResult_t whorlStreamDestroy(whorlStream_t stream) {
  return guarded("whorlStreamDestroy", [&]() -> Status {
    if (stream == nullptr) return {};
    const auto found = find_stream(stream);
    if (found == nullptr) return invalid("whorlStreamDestroy", "stream does not exist");
    const Status status = found->synchronize();
    destroy_stream(stream);
    return status;
  });
}

} // extern "C"
