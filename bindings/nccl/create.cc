// Creation, queries and destruction of communicators.
#include <cstring>

#include "bindings/nccl/config.h"
#include "bindings/nccl/support.h"

using namespace whorl_nccl; // NOLINT: joins the names of both libraries

namespace {

/// Options of a program for whorl.
class Options {
 public:
  explicit Options(const ncclConfig_t* config) noexcept
      : given_(config != nullptr), value_(given_ ? translate(*config) : default_config()) {}

  /// Returns the options, or those of a program without options.
  whorlConfig_t* get() noexcept { return &value_; }
  /// Returns the options, or null, with which a child inherits those of its parent.
  whorlConfig_t* of_child() noexcept { return given_ ? &value_ : nullptr; }

 private:
  bool given_;
  whorlConfig_t value_;
};

whorlUniqueId inner(const ncclUniqueId& id) noexcept {
  whorlUniqueId out;
  std::memcpy(&out, &id, sizeof out);
  return out;
}

ncclResult_t init(ncclComm_t* comm, int nranks, const ncclUniqueId& id, int rank,
                  const ncclConfig_t* config) noexcept {
  return report(whorlCommInitRankConfig(whorl_nccl::inner(comm), nranks, inner(id), rank,
                                        Options(config).get()));
}

ncclResult_t shrink(ncclComm_t comm, const int* excluded, int excluded_count, ncclComm_t* newcomm,
                    const ncclConfig_t* config, int flags) {
  // whorl takes a count of 0 as the wish to find the dead, which NCCL has not. With -1 whorl
  // refuses the call and tells the other ranks.
  const int count = excluded_count != 0 ? excluded_count : -1;
  const whorlResult_t result =
      whorlCommShrink(whorl_nccl::inner(comm), excluded, count, whorl_nccl::inner(newcomm),
                      Options(config).of_child(), flags);
  if (excluded_count != 0) return report(result);
  return fail_in_group(ncclInvalidArgument, "ncclCommShrink: excludeRanksList is empty");
}

} // namespace

WHORL_NCCL_DEFINE(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * uniqueId)) {
  return report(whorlGetUniqueId(reinterpret_cast<whorlUniqueId*>(uniqueId)));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommInitRank,
                  (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank)) {
  return init(comm, nranks, commId, rank, nullptr);
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommInitRankConfig,
                  (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank,
                   ncclConfig_t* config)) {
  return init(comm, nranks, commId, rank, config);
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommInitRankScalable,
                  (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
                   ncclConfig_t* config)) {
  return report(whorlCommInitRankScalable(inner(newcomm), nranks, myrank, nId,
                                          reinterpret_cast<whorlUniqueId*>(commIds),
                                          Options(config).get()));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommInitAll,
                  (ncclComm_t * comm, int ndev, const int* devlist)) {
  ncclResult_t result = report(whorlCommInitAll(inner(comm), ndev, devlist));
  const int timeout_ms = default_config().timeoutMs;
  for (int i = 0; i < ndev && result == ncclSuccess && timeout_ms > 0; ++i) {
    result = report(whorlCommSetTimeout(inner(comm[i]), timeout_ms));
  }
  return result;
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommSplit,
                  (ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                   ncclConfig_t* config)) {
  return report(
      whorlCommSplit(inner(comm), color, key, inner(newcomm), Options(config).of_child()));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommShrink,
                  (ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                   ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags)) {
  return guarded("ncclCommShrink", [&] {
    return shrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
  });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int revokeFlags)) {
  return report(whorlCommRevoke(inner(comm), revokeFlags));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId* uniqueId)) {
  return report(whorlCommGetUniqueId(inner(comm), reinterpret_cast<whorlUniqueId*>(uniqueId)));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommGrow,
                  (ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank,
                   ncclComm_t* newcomm, ncclConfig_t* config)) {
  return report(whorlCommGrow(inner(comm), nRanks, reinterpret_cast<const whorlUniqueId*>(uniqueId),
                              rank, inner(newcomm), Options(config).get()));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommFinalize, (ncclComm_t comm)) {
  return report(whorlCommFinalize(inner(comm)));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommDestroy, (ncclComm_t comm)) {
  // NCCL completes what is under way, however late another rank comes. An error is that of an
  // operation, which has reported it, or of a communicator that is not ready or finalized already.
  static_cast<void>(whorlCommFinalize(inner(comm)));
  return report(whorlCommDestroy(inner(comm)));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommAbort, (ncclComm_t comm)) {
  return report(whorlCommAbort(inner(comm)));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommGetAsyncError,
                  (ncclComm_t comm, ncclResult_t* asyncError)) {
  if (asyncError == nullptr) {
    return fail(ncclInvalidArgument, "ncclCommGetAsyncError: asyncError is NULL");
  }
  whorlResult_t state = whorlSuccess;
  const ncclResult_t result = report(whorlCommGetAsyncError(inner(comm), &state));
  if (result == ncclSuccess) *asyncError = static_cast<ncclResult_t>(state);
  return result;
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int* count)) {
  return report(whorlCommCount(inner(comm), count));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int* device)) {
  return report(whorlCommCuDevice(inner(comm), device));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int* rank)) {
  return report(whorlCommUserRank(inner(comm), rank));
}
