// Collectives, transfers, operators.
//
// A stream orders work on a device. An operation on device memory, or with a factor in device
// memory, is queued in the stream. Another operation on host memory first waits for the work in the
// stream, then runs at once: it is complete when the call returns, or in a group when the outermost
// ncclGroupEnd() returns.
#include "bindings/nccl/numbers.h"
#include "bindings/nccl/place.h"
#include "bindings/nccl/support.h"

using namespace whorl_nccl; // NOLINT: joins the names of both libraries

namespace {

ncclResult_t no_type(const char* function, int type) noexcept {
  return fail_in_group(ncclInvalidArgument, function, ": datatype is ", type,
                       ", which is none; use ncclInt8 (0) to ncclFloat8e5m2 (11)");
}

ncclResult_t no_operator(const char* function, int op) noexcept {
  return fail_in_group(ncclInvalidArgument, function, ": op is ", op,
                       ", which is none; use ncclSum (0) to ncclAvg (4) or one that "
                       "ncclRedOpCreatePreMulSum made");
}

/// Issues an operation on its stream. `count` is the count of the call; `issue` calls whorl with
/// the datatype and the stream.
template <class Issue>
ncclResult_t on_stream(const char* function, const void* sendbuff, const void* recvbuff,
                       size_t count, ncclDataType_t datatype, cudaStream_t stream,
                       Issue&& issue) noexcept {
  const auto type = inner_type(datatype);
  if (!type) return no_type(function, datatype);
  void* queue = nullptr;
  if (const ncclResult_t ready = prepare(function, sendbuff, recvbuff, count, stream, &queue);
      ready != ncclSuccess) {
    return ready;
  }
  return report(issue(*type, queue));
}

/// Issues a reduction on its stream: `issue` gets the operator, too, before the stream.
template <class Issue>
ncclResult_t reduce_on_stream(const char* function, const void* sendbuff, const void* recvbuff,
                              size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                              cudaStream_t stream, Issue&& issue) noexcept {
  const auto known = inner_operator(op);
  if (!known) return no_operator(function, op);
  if (has_factor_on_device(op)) {
    const auto type = inner_type(datatype);
    return type ? report(issue(*type, *known, inner(stream))) : no_type(function, datatype);
  }
  return on_stream(function, sendbuff, recvbuff, count, datatype, stream,
                   [&](whorlDataType_t type, void* queue) { return issue(type, *known, queue); });
}

} // namespace

WHORL_NCCL_DEFINE(ncclResult_t, ncclAllReduce,
                  (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)) {
  return reduce_on_stream("ncclAllReduce", sendbuff, recvbuff, count, datatype, op, stream,
                          [&](whorlDataType_t type, whorlRedOp_t known, void* queue) {
                            return whorlAllReduce(sendbuff, recvbuff, count, type, known,
                                                  inner(comm), queue);
                          });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclReduce,
                  (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                   ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)) {
  return reduce_on_stream("ncclReduce", sendbuff, recvbuff, count, datatype, op, stream,
                          [&](whorlDataType_t type, whorlRedOp_t known, void* queue) {
                            return whorlReduce(sendbuff, recvbuff, count, type, known, root,
                                               inner(comm), queue);
                          });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclReduceScatter,
                  (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)) {
  return reduce_on_stream("ncclReduceScatter", sendbuff, recvbuff, recvcount, datatype, op, stream,
                          [&](whorlDataType_t type, whorlRedOp_t known, void* queue) {
                            return whorlReduceScatter(sendbuff, recvbuff, recvcount, type, known,
                                                      inner(comm), queue);
                          });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclBroadcast,
                  (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                   int root, ncclComm_t comm, cudaStream_t stream)) {
  return on_stream("ncclBroadcast", sendbuff, recvbuff, count, datatype, stream,
                   [&](whorlDataType_t type, void* queue) {
                     return whorlBroadcast(sendbuff, recvbuff, count, type, root, inner(comm),
                                           queue);
                   });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclBcast,
                  (void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                   cudaStream_t stream)) {
  return on_stream("ncclBcast", buff, buff, count, datatype, stream,
                   [&](whorlDataType_t type, void* queue) {
                     return whorlBcast(buff, count, type, root, inner(comm), queue);
                   });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclAllGather,
                  (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                   ncclComm_t comm, cudaStream_t stream)) {
  return on_stream("ncclAllGather", sendbuff, recvbuff, sendcount, datatype, stream,
                   [&](whorlDataType_t type, void* queue) {
                     return whorlAllGather(sendbuff, recvbuff, sendcount, type, inner(comm), queue);
                   });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclAlltoAll,
                  (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                   ncclComm_t comm, cudaStream_t stream)) {
  return on_stream("ncclAlltoAll", sendbuff, recvbuff, count, datatype, stream,
                   [&](whorlDataType_t type, void* queue) {
                     return whorlAlltoAll(sendbuff, recvbuff, count, type, inner(comm), queue);
                   });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclGather,
                  (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                   int root, ncclComm_t comm, cudaStream_t stream)) {
  return on_stream("ncclGather", sendbuff, recvbuff, count, datatype, stream,
                   [&](whorlDataType_t type, void* queue) {
                     return whorlGather(sendbuff, recvbuff, count, type, root, inner(comm), queue);
                   });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclScatter,
                  (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                   int root, ncclComm_t comm, cudaStream_t stream)) {
  return on_stream("ncclScatter", sendbuff, recvbuff, count, datatype, stream,
                   [&](whorlDataType_t type, void* queue) {
                     return whorlScatter(sendbuff, recvbuff, count, type, root, inner(comm), queue);
                   });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclSend,
                  (const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                   ncclComm_t comm, cudaStream_t stream)) {
  return on_stream("ncclSend", sendbuff, nullptr, count, datatype, stream,
                   [&](whorlDataType_t type, void* queue) {
                     return whorlSend(sendbuff, count, type, peer, inner(comm), queue);
                   });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclRecv,
                  (void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                   cudaStream_t stream)) {
  return on_stream("ncclRecv", nullptr, recvbuff, count, datatype, stream,
                   [&](whorlDataType_t type, void* queue) {
                     return whorlRecv(recvbuff, count, type, peer, inner(comm), queue);
                   });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclRedOpCreatePreMulSum,
                  (ncclRedOp_t * op, void* scalar, ncclDataType_t datatype,
                   ncclScalarResidence_t residence, ncclComm_t comm)) {
  if (op == nullptr) return fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: op is NULL");
  const bool on_device = residence == ncclScalarDevice && place_of(scalar) == Place::kDevice;
  if (on_device) {
    if (const ncclResult_t usable = check_device("ncclRedOpCreatePreMulSum", "scalar");
        usable != ncclSuccess) {
      return usable;
    }
  }
  const auto type = inner_type(datatype);
  if (!type) return no_type("ncclRedOpCreatePreMulSum", datatype);
  whorlRedOp_t made = whorlSum;
  const ncclResult_t result = report(whorlRedOpCreatePreMulSum(
      &made, scalar, *type, static_cast<whorlScalarResidence_t>(residence), inner(comm)));
  if (result == ncclSuccess)
    *op = static_cast<ncclRedOp_t>(made | (on_device ? kFactorOnDevice : 0));
  return result;
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) {
  const auto known = inner_operator(op);
  return known ? report(whorlRedOpDestroy(*known, inner(comm)))
               : no_operator("ncclRedOpDestroy", op);
}
