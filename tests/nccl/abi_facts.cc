// Prints a compiler's facts about NCCL's ABI, one per line: types of functions, values of
// enumerators, sizes and offsets. Built once with the declarations of this project and, where it is
// installed, once with NVIDIA's header; abi_test.py compares.
#ifdef WHORL_NCCL_REFERENCE
#define NCCL_OS_LINUX // later headers declare ncclResetDebugInit() only then
#include <nccl.h>
#ifdef WHORL_NCCL_REFERENCE_DEVICE
#include <nccl_device.h>
#endif
#else
#include "bindings/nccl/abi.h"
#endif

#include <cstddef>
#include <cstdio>
#include <typeinfo>
#include <utility>

namespace {

#define TYPE(f) std::printf("function %s\t%s\n", #f, typeid(decltype(f)).name())
#define VALUE(v) std::printf("value %s\t%lld\n", #v, static_cast<long long>(v))
#define SIZE(type) std::printf("size %s\t%zu aligned to %zu\n", #type, sizeof(type), alignof(type))
#define MEMBER(type, member)                                                       \
  std::printf("member %s.%s\t%zu of %s\n", #type, #member, offsetof(type, member), \
              typeid(decltype(type::member)).name())

void functions() {
#define WHORL_NCCL(result, name, parameters) TYPE(name), TYPE(p##name);
#if !defined(WHORL_NCCL_REFERENCE) || NCCL_VERSION_CODE >= 23000
#define WHORL_NCCL_LATER(result, name, parameters) TYPE(name), TYPE(p##name);
#endif
#if !defined(WHORL_NCCL_REFERENCE) || NCCL_VERSION_CODE >= 23200
#define WHORL_NCCL_LATEST(result, name, parameters) TYPE(name), TYPE(p##name);
#endif
#include "bindings/nccl/functions.def"
}

#if !defined(WHORL_NCCL_REFERENCE) || defined(WHORL_NCCL_REFERENCE_DEVICE)
void device() {
  // The other functions are overloaded for kernels or not declared in every release.
  TYPE(ncclDevCommCreate), TYPE(ncclDevCommDestroy);
  TYPE(ncclLLA2ACalcSlots), TYPE(ncclLLA2ACreateRequirement);
  TYPE(ncclLsaBarrierCreateRequirement), TYPE(ncclGinBarrierCreateRequirement);
  SIZE(ncclTeam);
  MEMBER(ncclTeam, nRanks), MEMBER(ncclTeam, rank), MEMBER(ncclTeam, stride);
  SIZE(ncclMultimemHandle);
#if !defined(WHORL_NCCL_REFERENCE) || NCCL_VERSION_CODE >= 23000
  TYPE(ncclCommQueryProperties);
  TYPE(ncclGetLsaMultimemDevicePointer), TYPE(ncclGetMultimemDevicePointer);
  TYPE(ncclGetLsaDevicePointer), TYPE(ncclGetPeerDevicePointer);
  SIZE(ncclCommProperties);
  for (const auto& [name, offset] :
       {std::pair{"rank", offsetof(ncclCommProperties, rank)},
        {"nRanks", offsetof(ncclCommProperties, nRanks)},
        {"cudaDev", offsetof(ncclCommProperties, cudaDev)},
        {"nvmlDev", offsetof(ncclCommProperties, nvmlDev)},
        {"deviceApiSupport", offsetof(ncclCommProperties, deviceApiSupport)},
        {"multimemSupport", offsetof(ncclCommProperties, multimemSupport)},
        {"ginType", offsetof(ncclCommProperties, ginType)},
        {"nLsaTeams", offsetof(ncclCommProperties, nLsaTeams)},
        {"hostRmaSupport", offsetof(ncclCommProperties, hostRmaSupport)},
        {"railedGinType", offsetof(ncclCommProperties, railedGinType)}}) {
    std::printf("offset ncclCommProperties.%s\t%zu\n", name, offset);
  }
#endif
#if !defined(WHORL_NCCL_REFERENCE) || NCCL_VERSION_CODE >= 23200
  TYPE(ncclGetMultimemDeviceLeInfo), TYPE(ncclGetCftDeviceLeInfo), TYPE(ncclGetPeerDeviceLeInfo);
  TYPE(ncclTeamCft), TYPE(ncclTeamCftMultimem);
  VALUE(NCCL_CFT_TEAM_FLAT), VALUE(NCCL_CFT_TEAM_HIER_MULTIMEM), VALUE(NCCL_CFT_TEAM_HIER_LSA);
#endif
}
#endif

void values() {
  VALUE(ncclSuccess), VALUE(ncclUnhandledCudaError), VALUE(ncclSystemError);
  VALUE(ncclInternalError), VALUE(ncclInvalidArgument), VALUE(ncclInvalidUsage);
  VALUE(ncclRemoteError), VALUE(ncclInProgress), VALUE(ncclNumResults);
  VALUE(ncclInt8), VALUE(ncclChar), VALUE(ncclUint8), VALUE(ncclInt32), VALUE(ncclInt);
  VALUE(ncclUint32), VALUE(ncclInt64), VALUE(ncclUint64), VALUE(ncclFloat16), VALUE(ncclHalf);
  VALUE(ncclFloat32), VALUE(ncclFloat), VALUE(ncclFloat64), VALUE(ncclDouble);
  VALUE(ncclBfloat16), VALUE(ncclFloat8e4m3), VALUE(ncclFloat8e5m2), VALUE(ncclNumTypes);
  VALUE(ncclSum), VALUE(ncclProd), VALUE(ncclMax), VALUE(ncclMin), VALUE(ncclAvg);
  VALUE(ncclNumOps), VALUE(ncclMaxRedOp);
  VALUE(ncclScalarDevice), VALUE(ncclScalarHostImmediate);
  VALUE(NCCL_UNIQUE_ID_BYTES), VALUE(NCCL_CONFIG_UNDEF_INT), VALUE(NCCL_SPLIT_NOCOLOR);
  VALUE(NCCL_WIN_DEFAULT), VALUE(NCCL_WIN_COLL_SYMMETRIC);
  VALUE(NCCL_SHRINK_DEFAULT), VALUE(NCCL_SHRINK_ABORT), VALUE(NCCL_REVOKE_DEFAULT);
  VALUE(NCCL_UNDEF_FLOAT);
  VALUE(NCCL_VERSION_CODE);
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  VALUE(config.magic), VALUE(config.blocking), VALUE(config.nvlinkCentricSched);
  const ncclSimInfo_t simulation = NCCL_SIM_INFO_INITIALIZER;
  VALUE(simulation.magic), VALUE(simulation.estimatedTime);
}

void layouts() {
  SIZE(ncclResult_t), SIZE(ncclDataType_t), SIZE(ncclRedOp_t), SIZE(ncclScalarResidence_t);
  SIZE(ncclUniqueId);
  MEMBER(ncclUniqueId, internal);
  SIZE(ncclConfig_t);
  MEMBER(ncclConfig_t, size), MEMBER(ncclConfig_t, magic), MEMBER(ncclConfig_t, version);
  MEMBER(ncclConfig_t, blocking), MEMBER(ncclConfig_t, cgaClusterSize);
  MEMBER(ncclConfig_t, minCTAs), MEMBER(ncclConfig_t, maxCTAs), MEMBER(ncclConfig_t, netName);
  MEMBER(ncclConfig_t, splitShare), MEMBER(ncclConfig_t, trafficClass);
  MEMBER(ncclConfig_t, commName), MEMBER(ncclConfig_t, collnetEnable);
  MEMBER(ncclConfig_t, CTAPolicy), MEMBER(ncclConfig_t, shrinkShare);
  MEMBER(ncclConfig_t, nvlsCTAs), MEMBER(ncclConfig_t, nChannelsPerNetPeer);
  MEMBER(ncclConfig_t, nvlinkCentricSched);
  SIZE(ncclSimInfo_t);
  MEMBER(ncclSimInfo_t, size), MEMBER(ncclSimInfo_t, magic), MEMBER(ncclSimInfo_t, version);
  MEMBER(ncclSimInfo_t, estimatedTime);
#if !defined(WHORL_NCCL_REFERENCE) || NCCL_VERSION_CODE >= 23000
  SIZE(ncclCommMemStat_t), SIZE(ncclWaitSignalDesc_t);
  MEMBER(ncclWaitSignalDesc_t, opCnt), MEMBER(ncclWaitSignalDesc_t, peer);
  MEMBER(ncclWaitSignalDesc_t, sigIdx), MEMBER(ncclWaitSignalDesc_t, ctx);
  VALUE(ncclStatGpuMemSuspend), VALUE(ncclStatGpuMemSuspended), VALUE(ncclStatGpuMemPersist);
  VALUE(ncclStatGpuMemTotal);
#endif
#if !defined(WHORL_NCCL_REFERENCE) || NCCL_VERSION_CODE >= 23200
  SIZE(ncclConfigExt_t);
  MEMBER(ncclConfigExt_t, next);
  std::printf("offset ncclConfigExt_t.key\t%zu\n", offsetof(ncclConfigExt_t, key));
  std::printf("offset ncclConfigExt_t.val\t%zu\n", offsetof(ncclConfigExt_t, val));
  SIZE(ncclCollConfig_t);
  MEMBER(ncclCollConfig_t, size), MEMBER(ncclCollConfig_t, magic);
  MEMBER(ncclCollConfig_t, version), MEMBER(ncclCollConfig_t, ext);
  MEMBER(ncclCollConfig_t, minCTAs), MEMBER(ncclCollConfig_t, maxCTAs);
  MEMBER(ncclCollConfig_t, nvlsCTAs), MEMBER(ncclCollConfig_t, cgaClusterSize);
  MEMBER(ncclCollConfig_t, algSelection), MEMBER(ncclCollConfig_t, forceAlgSelection);
  MEMBER(ncclCollConfig_t, CTAPolicy), MEMBER(ncclCollConfig_t, userProfilerTag);
  MEMBER(ncclCollConfig_t, launchCompletionEvent);
  const ncclCollConfig_t collective = NCCL_COLLCONFIG_INITIALIZER;
  VALUE(collective.magic), VALUE(collective.minCTAs), VALUE(collective.maxCTAs);
  VALUE(collective.nvlsCTAs), VALUE(collective.cgaClusterSize);
  VALUE(collective.forceAlgSelection), VALUE(collective.CTAPolicy);
  VALUE(collective.userProfilerTag);
  SIZE(ncclEncryptionConfig_t), SIZE(ncclEncryptionMode_t);
  MEMBER(ncclEncryptionConfig_t, size), MEMBER(ncclEncryptionConfig_t, magic);
  MEMBER(ncclEncryptionConfig_t, version), MEMBER(ncclEncryptionConfig_t, mode);
  MEMBER(ncclEncryptionConfig_t, psk);
  const ncclEncryptionConfig_t encryption = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
  VALUE(encryption.magic), VALUE(encryption.mode);
  VALUE(NCCL_ENCRYPTION_MODE_NONE), VALUE(NCCL_ENCRYPTION_MODE_PSK);
#endif
}

} // namespace

int main() {
  functions();
#if !defined(WHORL_NCCL_REFERENCE) || defined(WHORL_NCCL_REFERENCE_DEVICE)
  device();
#endif
  values();
  layouts();
  return 0;
}
