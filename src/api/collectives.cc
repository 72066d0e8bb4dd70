// Groups, collectives, transfers, operators.
#include <cstring>

#include "api/check.h"
#include "api/group.h"
#include "api/support.h"
#include "engine/stream.h"

using namespace whorl;       // NOLINT: this file is the bridge between the two worlds
using namespace whorl::capi; // NOLINT

namespace {

whorlResult_t any_call(const RawCall& raw, whorlComm_t handle, void* stream) noexcept {
  return check_and_issue(raw.function, handle, stream, [&](Request& request) {
    return check_call(raw, *handle->communicator, request);
  });
}

whorlResult_t repeat_failed(const char* function, whorlComm& handle, WaitResult result) noexcept {
  return guarded(function, [&]() -> Status {
    Status status = handle.communicator->finish(result);
    handle.set_error(status);
    return status;
  });
}

/// Issues a call. A blocking call outside a group that repeats the last call of its collective
/// starts within some hundred instructions. Inlined, so that the arguments are compared where they
/// arrive, in registers.
[[gnu::always_inline]] inline whorlResult_t call(RawCall raw, whorlComm_t handle,
                                                 void* stream) noexcept {
  if (stream == nullptr && Group::outside() && exists(handle) &&
      !in_forked_child.load(std::memory_order_relaxed)) {
    const Inside inside(*handle);
    if (handle->usable() && handle->communicator->matches_last_call(raw)) {
      const WaitResult result = handle->communicator->repeat(raw.collective, raw.send, raw.recv);
      if (result == WaitResult::kReady) [[likely]]
        return whorlSuccess;
      return repeat_failed(raw.function, *handle, result);
    }
  }
  return any_call(raw, handle, stream);
}

} // namespace

whorlResult_t whorl::capi::call_plain(const RawCall& raw, whorlComm* handle,
                                      void* stream) noexcept {
  return call(raw, handle, stream);
}

extern "C" {

whorlResult_t whorlGroupStart(void) {
  return guarded("whorlGroupStart", []() -> Status {
    Group::current().start();
    return {};
  });
}

whorlResult_t whorlGroupEnd(void) {
  return guarded("whorlGroupEnd", [] { return Group::current().end(); });
}

whorlResult_t whorlGroupSimulateEnd(whorlSimInfo_t* simInfo) {
  constexpr const char* kName = "whorlGroupSimulateEnd";
  return guarded(kName, [&]() -> Status {
    WHORL_TRY(Group::current().drop());
    if (simInfo == nullptr || Group::open()) return {};
    if (simInfo->magic != WHORL_SIM_INFO_MAGIC) {
      return invalid(kName, "simInfo was not initialised; start from WHORL_SIM_INFO_INITIALIZER");
    }
    if (simInfo->size >= offsetof(whorlSimInfo_t, estimatedTime) + sizeof(float)) {
      simInfo->estimatedTime = WHORL_UNDEF_FLOAT;
    }
    return {};
  });
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

whorlResult_t whorlRecvAny(void* recvbuff, size_t count, whorlDataType_t datatype, int* source,
                           whorlComm_t comm, void* stream) {
  return any_call({.function = "whorlRecvAny",
                   .collective = Collective::kRecv,
                   .recv = recvbuff,
                   .count = count,
                   .type = datatype,
                   .peer = kAnyRank,
                   .any_peer = true,
                   .source = source},
                  comm, stream);
}

whorlResult_t whorlRedOpCreatePreMulSum(whorlRedOp_t* op, void* scalar, whorlDataType_t datatype,
                                        whorlScalarResidence_t residence, whorlComm_t comm) {
  constexpr const char* kName = "whorlRedOpCreatePreMulSum";
  return guarded(kName, comm, [&]() -> Status {
    WHORL_TRY(check_ready(kName, comm));
    if (op == nullptr) return invalid(kName, "op is NULL");
    if (scalar == nullptr) return invalid(kName, "scalar is NULL");
    const int type = datatype;
    if (type < 0 || type >= kNumDataTypes) {
      return invalid(kName, fmt::format("datatype is {}, which is none", type));
    }
    if (type == whorlBool) {
      return invalid(kName, "datatype is whorlBool; truth values have no multiples to be summed");
    }
    const int where = residence;
    if (where != whorlScalarDevice && where != whorlScalarHostImmediate) {
      return invalid(kName, fmt::format("residence is {}; use whorlScalarHostImmediate ({}) or "
                                        "whorlScalarDevice ({})",
                                        where, static_cast<int>(whorlScalarHostImmediate),
                                        static_cast<int>(whorlScalarDevice)));
    }
    Operators::Scale scale{.type = static_cast<DataType>(type),
                           .source = where == whorlScalarDevice ? scalar : nullptr,
                           .value = {}};
    if (scale.source == nullptr) std::memcpy(scale.value.data(), scalar, size_of(scale.type));
    *op = static_cast<whorlRedOp_t>(comm->communicator->operators().add(scale));
    return {};
  });
}

whorlResult_t whorlRedOpDestroy(whorlRedOp_t op, whorlComm_t comm) {
  return guarded("whorlRedOpDestroy", comm, [&]() -> Status {
    WHORL_TRY(check_ready("whorlRedOpDestroy", comm));
    const int number = op;
    if (is_reduce_op(number)) {
      return invalid("whorlRedOpDestroy",
                     fmt::format("op {} is built in and cannot be destroyed", number));
    }
    if (!comm->communicator->operators().remove(number)) {
      return invalid("whorlRedOpDestroy",
                     fmt::format("op {} is not an operator of this communicator", number));
    }
    return {};
  });
}

} // extern "C"
