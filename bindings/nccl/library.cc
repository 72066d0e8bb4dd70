// Version, texts of results, groups.
#include <utility>

#include "bindings/nccl/support.h"

using namespace whorl_nccl; // NOLINT: joins the names of both libraries

namespace {

/// Ends a level of the group after whorl's, and returns the first error of the group.
ncclResult_t end_group(whorlResult_t ended) noexcept {
  Group& open = group();
  if (open.depth == 0 || --open.depth > 0) return report(ended);
  const Group closed = std::exchange(open, {});
  return closed.found != ncclSuccess ? fail(closed.found, closed.sentence) : report(ended);
}

} // namespace

WHORL_NCCL_DEFINE(ncclResult_t, ncclGetVersion, (int* version)) {
  if (version == nullptr) return fail(ncclInvalidArgument, "ncclGetVersion: version is NULL");
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

// Returns texts whose first words programs look for.
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
extern "C" __attribute__((visibility("default"))) void ncclResetDebugInitInternal(void) {}

// Refuses keys of the caller, which whorl does not use: a program that asks for encryption must not
// run without it.
WHORL_NCCL_DEFINE(ncclResult_t, ncclSetEncryption, (const ncclEncryptionConfig_t* config)) {
  if (config == nullptr) return ncclSuccess;
  if (config->magic != NCCL_CONFIG_MAGIC || config->size < offsetof(ncclEncryptionConfig_t, psk)) {
    return fail(ncclInvalidArgument,
                "ncclSetEncryption: config was not initialised; start from "
                "NCCL_ENCRYPTION_CONFIG_INITIALIZER");
  }
  switch (config->mode) {
    case NCCL_ENCRYPTION_MODE_NONE:
      return ncclSuccess;
    case NCCL_ENCRYPTION_MODE_PSK:
      return refuse(
          "ncclSetEncryption",
          "whorl encrypts with keys of its own; pass NCCL_ENCRYPTION_MODE_NONE (0) and set "
          "WHORL_ENCRYPT=1 on all ranks");
    default:
      return fail(ncclInvalidArgument, "ncclSetEncryption: config.mode is ", config->mode,
                  "; use NCCL_ENCRYPTION_MODE_NONE (0)");
  }
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclGroupStart, (void)) {
  const ncclResult_t result = report(whorlGroupStart());
  if (result == ncclSuccess) ++group().depth;
  return result;
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclGroupEnd, (void)) { return end_group(whorlGroupEnd()); }

// Ends the group without issuing its calls.
WHORL_NCCL_DEFINE(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * simInfo)) {
  static_assert(sizeof(ncclSimInfo_t) == sizeof(whorlSimInfo_t));
  const whorlResult_t ended = whorlGroupSimulateEnd(reinterpret_cast<whorlSimInfo_t*>(simInfo));
  return end_group(ended);
}
