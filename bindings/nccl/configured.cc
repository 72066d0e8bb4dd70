// Collectives with options of their own. Options that tune NCCL's kernels have no counterpart: they
// are checked and ignored. Options that a program relies on are refused.
#include <algorithm>
#include <cstring>

#include "bindings/nccl/support.h"

using namespace whorl_nccl; // NOLINT: joins the names of both libraries

namespace {

/// Checks the options of a collective. Reads at most `config->size` bytes: the program may be older
/// or newer than this library.
ncclResult_t check_options(const char* function, const ncclCollConfig_t* config) noexcept {
  if (config == nullptr) return ncclSuccess;
  if (config->magic != NCCL_CONFIG_MAGIC || config->size < offsetof(ncclCollConfig_t, ext)) {
    return fail_in_group(ncclInvalidArgument, function,
                         ": config was not initialised; start from NCCL_COLLCONFIG_INITIALIZER");
  }
  ncclCollConfig_t given = NCCL_COLLCONFIG_INITIALIZER;
  std::memcpy(&given, config, std::min(config->size, sizeof given));

  if (given.forceAlgSelection != 0 && given.forceAlgSelection != 1) {
    return fail_in_group(ncclInvalidArgument, function, ": config.forceAlgSelection is ",
                         given.forceAlgSelection, "; it must be 0 or 1");
  }
  if (given.CTAPolicy != NCCL_CONFIG_UNDEF_INT && (given.CTAPolicy < 0 || given.CTAPolicy > 3)) {
    return fail_in_group(ncclInvalidArgument, function, ": config.CTAPolicy is ", given.CTAPolicy,
                         "; it must be from 0 to 3");
  }
  const bool selects = given.algSelection != nullptr && *given.algSelection != '\0';
  if (selects && given.forceAlgSelection == 1) {
    return fail_in_group(ncclInvalidArgument, function, ": config.algSelection is \"",
                         given.algSelection,
                         "\", and whorl selects no algorithm for a single call; set "
                         "config.forceAlgSelection to 0, or WHORL_ALGO for all calls");
  }
  if (given.launchCompletionEvent != nullptr) {
    return fail_in_group(ncclInvalidUsage, function,
                         ": config.launchCompletionEvent is set, and whorl records no events; "
                         "record the event on the stream after the call");
  }
  return ncclSuccess;
}

} // namespace

/// Defines nameConfig(): name() with options.
#define WHORL_NCCL_CONFIGURED(name, parameters, arguments)             \
  WHORL_NCCL_DEFINE(ncclResult_t, name##Config, parameters) {          \
    const ncclResult_t usable = check_options(#name "Config", config); \
    return usable == ncclSuccess ? p##name arguments : usable;         \
  }

WHORL_NCCL_CONFIGURED(ncclAllReduce,
                      (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                       const ncclCollConfig_t* config),
                      (sendbuff, recvbuff, count, datatype, op, comm, stream))
WHORL_NCCL_CONFIGURED(ncclBroadcast,
                      (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                       int root, ncclComm_t comm, cudaStream_t stream,
                       const ncclCollConfig_t* config),
                      (sendbuff, recvbuff, count, datatype, root, comm, stream))
WHORL_NCCL_CONFIGURED(ncclReduce,
                      (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                       ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                       const ncclCollConfig_t* config),
                      (sendbuff, recvbuff, count, datatype, op, root, comm, stream))
WHORL_NCCL_CONFIGURED(ncclAllGather,
                      (const void* sendbuff, void* recvbuff, size_t sendcount,
                       ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                       const ncclCollConfig_t* config),
                      (sendbuff, recvbuff, sendcount, datatype, comm, stream))
WHORL_NCCL_CONFIGURED(ncclReduceScatter,
                      (const void* sendbuff, void* recvbuff, size_t recvcount,
                       ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                       cudaStream_t stream, const ncclCollConfig_t* config),
                      (sendbuff, recvbuff, recvcount, datatype, op, comm, stream))
WHORL_NCCL_CONFIGURED(ncclAlltoAll,
                      (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                       ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config),
                      (sendbuff, recvbuff, count, datatype, comm, stream))
WHORL_NCCL_CONFIGURED(ncclGather,
                      (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                       int root, ncclComm_t comm, cudaStream_t stream,
                       const ncclCollConfig_t* config),
                      (sendbuff, recvbuff, count, datatype, root, comm, stream))
WHORL_NCCL_CONFIGURED(ncclScatter,
                      (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                       int root, ncclComm_t comm, cudaStream_t stream,
                       const ncclCollConfig_t* config),
                      (sendbuff, recvbuff, count, datatype, root, comm, stream))
