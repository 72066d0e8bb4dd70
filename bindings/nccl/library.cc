// Version, texts of results, groups.
#include "bindings/nccl/create.h"
#include "bindings/nccl/support.h"

using namespace whorl_nccl; // NOLINT: the bridge between the two worlds

WHORL_NCCL_DEFINE(ncclResult_t, ncclGetVersion, (int* version)) {
  if (version == nullptr) return fail(ncclInvalidArgument, "ncclGetVersion: version is NULL");
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

// Programs look for the first words of these.
WHORL_NCCL_DEFINE(const char*, ncclGetErrorString, (ncclResult_t result)) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    case ncclNumResults:
      break;
  }
  return "unknown result code";
}

WHORL_NCCL_DEFINE(void, ncclResetDebugInit, (void)) {}

WHORL_NCCL_DEFINE(ncclResult_t, ncclGroupStart, (void)) {
  const ncclResult_t result = report(whorlGroupStart());
  if (result == ncclSuccess) ++group_depth();
  return result;
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclGroupEnd, (void)) {
  const ncclResult_t result = report(whorlGroupEnd());
  if (group_depth() > 0 && --group_depth() == 0) forget_creations();
  return result;
}

// Ends the group without issuing its calls. There is no estimate of the time: the field says so.
WHORL_NCCL_DEFINE(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * simInfo)) {
  if (group_depth() == 0) {
    return fail(ncclInvalidUsage,
                "ncclGroupSimulateEnd without a matching ncclGroupStart in this thread");
  }
  if (group_depth() > 1) return pncclGroupEnd();
  ncclResult_t result = ncclSuccess;
  if (simInfo != nullptr && simInfo->magic != NCCL_SIM_INFO_MAGIC) {
    result = fail(ncclInvalidArgument,
                  "ncclGroupSimulateEnd: simInfo was not initialised; start from "
                  "NCCL_SIM_INFO_INITIALIZER");
  } else if (simInfo != nullptr &&
             simInfo->size >= offsetof(ncclSimInfo_t, estimatedTime) + sizeof(float)) {
    simInfo->estimatedTime = NCCL_UNDEF_FLOAT;
  }
  // A group with a call that was refused issues nothing; the refusal is ours and expected.
  static_cast<void>(whorlSend(nullptr, 0, whorlInt8, 0, nullptr, nullptr));
  static_cast<void>(whorlGroupEnd());
  group_depth() = 0;
  forget_creations();
  return result;
}
