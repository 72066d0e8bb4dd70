// Functions that are impossible on host memory or over the C API of whorl. Every name of NCCL is
// exported, because programs are linked against names that they may never call.
#include "bindings/nccl/support.h"

using namespace whorl_nccl; // NOLINT: joins the names of both libraries

namespace {

constexpr const char* kNoKernels =
    "kernels cannot communicate through whorl, it has no device API; use the collectives";
constexpr const char* kNoSignals =
    "whorl has no one-sided operations; use ncclSend and ncclRecv in a group";
constexpr const char* kNoParameters =
    "whorl has none of NCCL's parameters; its own are environment variables that begin with WHORL_";
constexpr const char* kNoSuspension =
    "a communicator on host memory holds no device memory and cannot be suspended; destroy it and "
    "create it anew";

} // namespace

// Defines a function that refuses; its parameters have types and no names.
#define WHORL_NCCL_REFUSE(name, reason, types) \
  WHORL_NCCL_DEFINE(ncclResult_t, name, types) { return refuse(#name, reason); }

WHORL_NCCL_REFUSE(ncclCommSuspend, kNoSuspension, (ncclComm_t, int))
WHORL_NCCL_REFUSE(ncclCommResume, kNoSuspension, (ncclComm_t))

WHORL_NCCL_REFUSE(ncclPutSignal, kNoSignals,
                  (const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int,
                   unsigned int, ncclComm_t, cudaStream_t))
WHORL_NCCL_REFUSE(ncclSignal, kNoSignals, (int, int, int, unsigned int, ncclComm_t, cudaStream_t))
WHORL_NCCL_REFUSE(ncclWaitSignal, kNoSignals,
                  (int, ncclWaitSignalDesc_t*, ncclComm_t, cudaStream_t))

WHORL_NCCL_REFUSE(ncclParamBind, kNoParameters, (ncclParamHandle_t*, const char*))
WHORL_NCCL_REFUSE(ncclParamGetI8, kNoParameters, (ncclParamHandle_t, int8_t*))
WHORL_NCCL_REFUSE(ncclParamGetI16, kNoParameters, (ncclParamHandle_t, int16_t*))
WHORL_NCCL_REFUSE(ncclParamGetI32, kNoParameters, (ncclParamHandle_t, int32_t*))
WHORL_NCCL_REFUSE(ncclParamGetI64, kNoParameters, (ncclParamHandle_t, int64_t*))
WHORL_NCCL_REFUSE(ncclParamGetU8, kNoParameters, (ncclParamHandle_t, uint8_t*))
WHORL_NCCL_REFUSE(ncclParamGetU16, kNoParameters, (ncclParamHandle_t, uint16_t*))
WHORL_NCCL_REFUSE(ncclParamGetU32, kNoParameters, (ncclParamHandle_t, uint32_t*))
WHORL_NCCL_REFUSE(ncclParamGetU64, kNoParameters, (ncclParamHandle_t, uint64_t*))
WHORL_NCCL_REFUSE(ncclParamGetStr, kNoParameters, (ncclParamHandle_t, const char**))
WHORL_NCCL_REFUSE(ncclParamGet, kNoParameters, (ncclParamHandle_t, void*, int, int*))
WHORL_NCCL_REFUSE(ncclParamGetParameter, kNoParameters, (const char*, const char**, int*))
WHORL_NCCL_REFUSE(ncclParamGetAllParameterKeys, kNoParameters, (const char***, int*))
WHORL_NCCL_DEFINE(void, ncclParamDumpAll, (void)) {}

WHORL_NCCL_REFUSE(ncclDevCommCreate, kNoKernels,
                  (ncclComm_t, const ncclDevCommRequirements*, ncclDevComm*))
WHORL_NCCL_REFUSE(ncclDevCommDestroy, kNoKernels, (ncclComm_t, const ncclDevComm*))
WHORL_NCCL_REFUSE(ncclGetLsaMultimemDevicePointer, kNoKernels, (ncclWindow_t, size_t, void**))
WHORL_NCCL_REFUSE(ncclGetMultimemDevicePointer, kNoKernels,
                  (ncclWindow_t, size_t, ncclMultimemHandle, void**))
WHORL_NCCL_REFUSE(ncclGetLsaDevicePointer, kNoKernels, (ncclWindow_t, size_t, int, void**))
WHORL_NCCL_REFUSE(ncclGetPeerDevicePointer, kNoKernels, (ncclWindow_t, size_t, int, void**))
WHORL_NCCL_REFUSE(ncclGetMultimemDeviceLeInfo, kNoKernels,
                  (ncclWindow_t, size_t, ncclCftLeId*, size_t*))
WHORL_NCCL_REFUSE(ncclGetCftDeviceLeInfo, kNoKernels,
                  (ncclWindow_t, size_t, int, ncclTeam, ncclCftLeId*, size_t*))
WHORL_NCCL_REFUSE(ncclGetPeerDeviceLeInfo, kNoKernels,
                  (ncclWindow_t, size_t, int, ncclCftLeId*, size_t*))
WHORL_NCCL_REFUSE(ncclLLA2ACreateRequirement, kNoKernels,
                  (int, int, ncclLLA2AHandle*, ncclDevResourceRequirements*))
WHORL_NCCL_REFUSE(ncclLsaBarrierCreateRequirement, kNoKernels,
                  (ncclTeam, int, ncclLsaBarrierHandle*, ncclDevResourceRequirements*))
WHORL_NCCL_REFUSE(ncclGinBarrierCreateRequirement, kNoKernels,
                  (ncclComm_t, ncclTeam, int, ncclGinBarrierHandle*, ncclDevResourceRequirements*))
WHORL_NCCL_REFUSE(ncclGinOutboxCreateRequirement, kNoKernels,
                  (int, int, ncclGinOutboxHandle*, ncclDevResourceRequirements*))
WHORL_NCCL_REFUSE(ncclGinInboxA2ACreateRequirement, kNoKernels,
                  (ncclTeam, int, int, ncclGinInboxA2AHandle*, ncclDevResourceRequirements*))
