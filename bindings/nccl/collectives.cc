// Collectives, transfers, operators.
//
// A stream orders work on a device. An operation on host memory first waits for what its stream
// holds, then runs at once: it is complete when the call returns, in a group when the outermost
// ncclGroupEnd() returns.
#include "bindings/nccl/operators.h"
#include "bindings/nccl/place.h"
#include "bindings/nccl/support.h"

using namespace whorl_nccl; // NOLINT: the bridge between the two worlds

namespace {

/// `issue` is the call of whorl.
template <class Issue>
ncclResult_t on_host(const char* function, const void* sendbuff, const void* recvbuff,
                     cudaStream_t stream, Issue&& issue) noexcept {
  if (const ncclResult_t ready = prepare(function, sendbuff, recvbuff, stream);
      ready != ncclSuccess) {
    return ready;
  }
  return report(issue());
}

} // namespace

WHORL_NCCL_DEFINE(ncclResult_t, ncclAllReduce,
                  (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)) {
  return on_host("ncclAllReduce", sendbuff, recvbuff, stream, [&] {
    return whorlAllReduce(sendbuff, recvbuff, count, inner(datatype), inner_operator(op),
                          inner(comm), nullptr);
  });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclReduce,
                  (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                   ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)) {
  return on_host("ncclReduce", sendbuff, recvbuff, stream, [&] {
    return whorlReduce(sendbuff, recvbuff, count, inner(datatype), inner_operator(op), root,
                       inner(comm), nullptr);
  });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclReduceScatter,
                  (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)) {
  return on_host("ncclReduceScatter", sendbuff, recvbuff, stream, [&] {
    return whorlReduceScatter(sendbuff, recvbuff, recvcount, inner(datatype), inner_operator(op),
                              inner(comm), nullptr);
  });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclBroadcast,
                  (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                   int root, ncclComm_t comm, cudaStream_t stream)) {
  return on_host("ncclBroadcast", sendbuff, recvbuff, stream, [&] {
    return whorlBroadcast(sendbuff, recvbuff, count, inner(datatype), root, inner(comm), nullptr);
  });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclBcast,
                  (void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                   cudaStream_t stream)) {
  return on_host("ncclBcast", buff, buff, stream, [&] {
    return whorlBcast(buff, count, inner(datatype), root, inner(comm), nullptr);
  });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclAllGather,
                  (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                   ncclComm_t comm, cudaStream_t stream)) {
  return on_host("ncclAllGather", sendbuff, recvbuff, stream, [&] {
    return whorlAllGather(sendbuff, recvbuff, sendcount, inner(datatype), inner(comm), nullptr);
  });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclAlltoAll,
                  (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                   ncclComm_t comm, cudaStream_t stream)) {
  return on_host("ncclAlltoAll", sendbuff, recvbuff, stream, [&] {
    return whorlAlltoAll(sendbuff, recvbuff, count, inner(datatype), inner(comm), nullptr);
  });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclGather,
                  (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                   int root, ncclComm_t comm, cudaStream_t stream)) {
  return on_host("ncclGather", sendbuff, recvbuff, stream, [&] {
    return whorlGather(sendbuff, recvbuff, count, inner(datatype), root, inner(comm), nullptr);
  });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclScatter,
                  (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                   int root, ncclComm_t comm, cudaStream_t stream)) {
  return on_host("ncclScatter", sendbuff, recvbuff, stream, [&] {
    return whorlScatter(sendbuff, recvbuff, count, inner(datatype), root, inner(comm), nullptr);
  });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclSend,
                  (const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                   ncclComm_t comm, cudaStream_t stream)) {
  return on_host("ncclSend", sendbuff, nullptr, stream, [&] {
    return whorlSend(sendbuff, count, inner(datatype), peer, inner(comm), nullptr);
  });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclRecv,
                  (void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                   cudaStream_t stream)) {
  return on_host("ncclRecv", nullptr, recvbuff, stream, [&] {
    return whorlRecv(recvbuff, count, inner(datatype), peer, inner(comm), nullptr);
  });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclRedOpCreatePreMulSum,
                  (ncclRedOp_t * op, void* scalar, ncclDataType_t datatype,
                   ncclScalarResidence_t residence, ncclComm_t comm)) {
  if (op == nullptr) return fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: op is NULL");
  if (residence == ncclScalarDevice && place_of(scalar) == Place::kDevice) {
    return fail(ncclInvalidArgument,
                "ncclRedOpCreatePreMulSum: scalar is memory of a CUDA device; this build of whorl "
                "reads host memory only");
  }
  whorlRedOp_t made = whorlSum;
  const ncclResult_t result = report(whorlRedOpCreatePreMulSum(
      &made, scalar, inner(datatype), static_cast<whorlScalarResidence_t>(residence), inner(comm)));
  if (result == ncclSuccess) *op = outer_operator(made);
  return result;
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) {
  return report(whorlRedOpDestroy(inner_operator(op), inner(comm)));
}
