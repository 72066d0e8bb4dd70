// Collectives whose blocks have different sizes.
#include "api/check_v.h"
#include "api/support.h"

using namespace whorl;       // NOLINT: this file is the bridge between the two worlds
using namespace whorl::capi; // NOLINT

namespace {

/// Checks a call and issues it, or adds it to the open group.
whorlResult_t call(const RawBlocksCall& raw, whorlComm_t handle, void* stream) noexcept {
  const char* const function = raw.call.function;
  if (const Inside inside(handle); inside && handle->usable()) {
    const auto nranks = static_cast<std::size_t>(handle->communicator->nranks());
    if (const auto plain = plain_form(raw, nranks)) return call_plain(*plain, handle, stream);
  }
  return check_and_issue(function, handle, stream, [&](Request& request) {
    return check_blocks(raw, *handle->communicator, request);
  });
}

} // namespace

extern "C" {

whorlResult_t whorlAllGatherv(const void* sendbuff, size_t sendcount, void* recvbuff,
                              const size_t* recvcounts, const size_t* rdispls,
                              whorlDataType_t datatype, whorlComm_t comm, void* stream) {
  return call(
      {.call = {"whorlAllGatherv", Collective::kAllGather, sendbuff, recvbuff, sendcount, datatype},
       .recv_counts = recvcounts,
       .recv_displacements = rdispls},
      comm, stream);
}

whorlResult_t whorlReduceScatterv(const void* sendbuff, void* recvbuff, const size_t* recvcounts,
                                  whorlDataType_t datatype, whorlRedOp_t op, whorlComm_t comm,
                                  void* stream) {
  return call({.call = {"whorlReduceScatterv", Collective::kReduceScatter, sendbuff, recvbuff, 0,
                        datatype, op},
               .recv_counts = recvcounts},
              comm, stream);
}

whorlResult_t whorlAlltoAllv(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls,
                             void* recvbuff, const size_t* recvcounts, const size_t* rdispls,
                             whorlDataType_t datatype, whorlComm_t comm, void* stream) {
  return call({.call = {"whorlAlltoAllv", Collective::kAllToAll, sendbuff, recvbuff, 0, datatype},
               .send_counts = sendcounts,
               .send_displacements = sdispls,
               .recv_counts = recvcounts,
               .recv_displacements = rdispls},
              comm, stream);
}

whorlResult_t whorlGatherv(const void* sendbuff, size_t sendcount, void* recvbuff,
                           const size_t* recvcounts, const size_t* rdispls,
                           whorlDataType_t datatype, int root, whorlComm_t comm, void* stream) {
  return call({.call = {"whorlGatherv", Collective::kGather, sendbuff, recvbuff, sendcount,
                        datatype, whorlSum, root},
               .recv_counts = recvcounts,
               .recv_displacements = rdispls},
              comm, stream);
}

whorlResult_t whorlScatterv(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls,
                            void* recvbuff, size_t recvcount, whorlDataType_t datatype, int root,
                            whorlComm_t comm, void* stream) {
  return call({.call = {"whorlScatterv", Collective::kScatter, sendbuff, recvbuff, recvcount,
                        datatype, whorlSum, root},
               .send_counts = sendcounts,
               .send_displacements = sdispls},
              comm, stream);
}

} // extern "C"
