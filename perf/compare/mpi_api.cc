// C API on top of MPI; see peer_api.h. Built once for each MPI found. MPI returns its errors
// (MPI_ERRORS_RETURN) in place of its default, which ends the job.

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <array>
#include <climits>
#include <cstring>

#include "perf/compare/peer_api.h"

struct whorlComm {
  int rank;
  int nranks;
};

namespace {

whorlComm world;

bool to_mpi(whorlDataType_t type, MPI_Datatype* out) {
  switch (type) {
    case whorlInt8:
      *out = MPI_INT8_T;
      return true;
    case whorlUint8:
      *out = MPI_UINT8_T;
      return true;
    case whorlInt32:
      *out = MPI_INT32_T;
      return true;
    case whorlUint32:
      *out = MPI_UINT32_T;
      return true;
    case whorlInt64:
      *out = MPI_INT64_T;
      return true;
    case whorlUint64:
      *out = MPI_UINT64_T;
      return true;
    case whorlFloat32:
      *out = MPI_FLOAT;
      return true;
    case whorlFloat64:
      *out = MPI_DOUBLE;
      return true;
    default:
      return false;
  }
}

bool to_mpi(whorlRedOp_t op, MPI_Op* out) {
  switch (op) {
    case whorlSum:
      *out = MPI_SUM;
      return true;
    case whorlProd:
      *out = MPI_PROD;
      return true;
    case whorlMax:
      *out = MPI_MAX;
      return true;
    case whorlMin:
      *out = MPI_MIN;
      return true;
    default:
      return false;
  }
}

/// Returns the result of an MPI call, and keeps MPI's words for an error.
whorlResult_t result_of(int code) {
  if (code == MPI_SUCCESS) return whorlSuccess;
  std::array<char, MPI_MAX_ERROR_STRING> words{};
  int size = 0;
  MPI_Error_string(code, words.data(), &size);
  peer::last_error() = words.data();
  return whorlSystemError;
}

/// Returns the result of `body(count, type)` with the arguments converted to MPI's types.
template <class Body>
whorlResult_t copying(size_t count, whorlDataType_t datatype, Body&& body) {
  MPI_Datatype type{};
  if (!to_mpi(datatype, &type)) return peer::refuse("MPI has no such datatype");
  if (count > INT_MAX) return peer::refuse("more elements than an int counts");
  return result_of(body(static_cast<int>(count), type));
}

template <class Body>
whorlResult_t reducing(size_t count, whorlDataType_t datatype, whorlRedOp_t redop, Body&& body) {
  MPI_Op op{};
  if (!to_mpi(redop, &op)) return peer::refuse("MPI has no such operator");
  return copying(count, datatype,
                 [&](int elements, MPI_Datatype type) { return body(elements, type, op); });
}

/// Returns MPI_IN_PLACE where both sides are the same, else `send`.
const void* or_in_place(const void* send, const void* recv) {
  return send == recv ? MPI_IN_PLACE : send;
}

const char* block(const void* base, size_t count, whorlDataType_t type) {
  return static_cast<const char*>(base) +
         static_cast<size_t>(world.rank) * count * peer::size_of(type);
}

} // namespace

whorlResult_t whorlCommInitEnv(whorlComm_t* comm, whorlConfig_t*) {
  MPI_Init(nullptr, nullptr);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.nranks);
  *comm = &world;
  return whorlSuccess;
}
whorlResult_t whorlCommDestroy(whorlComm_t) {
  MPI_Finalize();
  return whorlSuccess;
}
whorlResult_t whorlCommAbort(whorlComm_t) { return result_of(MPI_Abort(MPI_COMM_WORLD, 1)); }
whorlResult_t whorlCommUserRank(const whorlComm_t comm, int* rank) {
  *rank = comm->rank;
  return whorlSuccess;
}
whorlResult_t whorlCommCount(const whorlComm_t comm, int* count) {
  *count = comm->nranks;
  return whorlSuccess;
}

whorlResult_t whorlBarrier(whorlComm_t, void*) { return result_of(MPI_Barrier(MPI_COMM_WORLD)); }

whorlResult_t whorlAllReduce(const void* send, void* recv, size_t count, whorlDataType_t datatype,
                             whorlRedOp_t redop, whorlComm_t, void*) {
  return reducing(count, datatype, redop, [&](int elements, MPI_Datatype type, MPI_Op op) {
    return MPI_Allreduce(or_in_place(send, recv), recv, elements, type, op, MPI_COMM_WORLD);
  });
}

whorlResult_t whorlReduce(const void* send, void* recv, size_t count, whorlDataType_t datatype,
                          whorlRedOp_t redop, int root, whorlComm_t, void*) {
  return reducing(count, datatype, redop, [&](int elements, MPI_Datatype type, MPI_Op op) {
    const void* from = world.rank == root ? or_in_place(send, recv) : send;
    return MPI_Reduce(from, recv, elements, type, op, root, MPI_COMM_WORLD);
  });
}

// Refuses reductions in place: MPI leaves the block at another place than the C API does.
whorlResult_t whorlReduceScatter(const void* send, void* recv, size_t count,
                                 whorlDataType_t datatype, whorlRedOp_t redop, whorlComm_t, void*) {
  if (recv == block(send, count, datatype)) return peer::refuse("measure it with --side out");
  return reducing(count, datatype, redop, [&](int elements, MPI_Datatype type, MPI_Op op) {
    return MPI_Reduce_scatter_block(send, recv, elements, type, op, MPI_COMM_WORLD);
  });
}

// Copies the root's input first where there are two buffers, since MPI broadcasts in place only.
whorlResult_t whorlBroadcast(const void* send, void* recv, size_t count, whorlDataType_t datatype,
                             int root, whorlComm_t, void*) {
  return copying(count, datatype, [&](int elements, MPI_Datatype type) {
    if (world.rank == root && send != recv) {
      std::memcpy(recv, send, count * peer::size_of(datatype));
    }
    return MPI_Bcast(recv, elements, type, root, MPI_COMM_WORLD);
  });
}

whorlResult_t whorlAllGather(const void* send, void* recv, size_t count, whorlDataType_t datatype,
                             whorlComm_t, void*) {
  return copying(count, datatype, [&](int elements, MPI_Datatype type) {
    const void* from = or_in_place(send, block(recv, count, datatype));
    return MPI_Allgather(from, elements, type, recv, elements, type, MPI_COMM_WORLD);
  });
}

whorlResult_t whorlAlltoAll(const void* send, void* recv, size_t count, whorlDataType_t datatype,
                            whorlComm_t, void*) {
  return copying(count, datatype, [&](int elements, MPI_Datatype type) {
    return MPI_Alltoall(send, elements, type, recv, elements, type, MPI_COMM_WORLD);
  });
}
