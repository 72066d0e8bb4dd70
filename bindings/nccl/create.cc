// Creation, queries and destruction of communicators.
#include <cstring>
#include <vector>

#include "bindings/nccl/config.h"
#include "bindings/nccl/place.h"
#include "bindings/nccl/support.h"

using namespace whorl_nccl; // NOLINT: joins the names of both libraries

namespace {

/// Translated options of a program, or the default configuration.
struct Options {
  whorlConfig_t value = default_config();

  ncclResult_t read(const char* function, const ncclConfig_t* config) noexcept {
    return config == nullptr ? ncclSuccess : translate(function, *config, value);
  }
};

whorlUniqueId inner(const ncclUniqueId& id) noexcept {
  whorlUniqueId out;
  std::memcpy(&out, &id, sizeof out);
  return out;
}

ncclResult_t init(const char* function, ncclComm_t* comm, int nranks, const ncclUniqueId& id,
                  int rank, const ncclConfig_t* config) noexcept {
  find_driver();
  Options options;
  if (const ncclResult_t result = options.read(function, config); result != ncclSuccess) {
    return result;
  }
  return report(
      whorlCommInitRankConfig(whorl_nccl::inner(comm), nranks, inner(id), rank, &options.value));
}

/// Checks the communicator from which another one will be made, and returns its rank and size.
ncclResult_t check_parent(const char* function, ncclComm_t comm, int& rank, int& count) {
  const whorlComm_t parent = whorl_nccl::inner(comm);
  whorlResult_t result = whorlCommUserRank(parent, &rank);
  if (result == whorlSuccess) result = whorlCommCount(parent, &count);
  if (result != whorlSuccess) {
    report(result);
    return fail_in_group(static_cast<ncclResult_t>(result), pncclGetLastError(nullptr));
  }
  whorlResult_t state = whorlSuccess;
  result = whorlCommGetAsyncError(parent, &state);
  if (result != whorlSuccess || state != whorlSuccess) {
    return fail_in_group(ncclInvalidUsage, function,
                         ": comm has failed, and its ranks meet through it; abort it and create a "
                         "communicator from a new ncclUniqueId. It failed with: ",
                         pncclGetLastError(comm));
  }
  return ncclSuccess;
}

ncclResult_t shrink(ncclComm_t comm, const int* excluded, int excluded_count, ncclComm_t* newcomm,
                    const ncclConfig_t* config, int flags) {
  constexpr const char* kName = "ncclCommShrink";
  // Without a list whorl finds the dead by itself; NCCL does not.
  if (excluded == nullptr || excluded_count < 1) {
    return fail_in_group(ncclInvalidArgument, "ncclCommShrink: excludeRanksList is empty");
  }
  Options options;
  if (const auto bad = options.read(kName, config); bad != ncclSuccess) return bad;
  // Without options the child inherits those of its parent.
  return report(whorlCommShrink(whorl_nccl::inner(comm), excluded, excluded_count,
                                whorl_nccl::inner(newcomm),
                                config == nullptr ? nullptr : &options.value, flags));
}

/// Distributes to all ranks of `comm` the id that exactly one of them has.
ncclResult_t spread_id(ncclComm_t comm, int count, const ncclUniqueId* own, ncclUniqueId& out) {
  struct Entry {
    char present;
    ncclUniqueId id;
  };
  Entry mine{};
  if (own != nullptr) mine = {1, *own};
  std::vector<Entry> all(static_cast<std::size_t>(count));
  if (const whorlResult_t result = whorlAllGather(&mine, all.data(), sizeof mine, whorlUint8,
                                                  whorl_nccl::inner(comm), nullptr);
      result != whorlSuccess) {
    return report(result);
  }
  int givers = 0;
  for (const Entry& entry : all) {
    if (entry.present == 0) continue;
    out = entry.id;
    ++givers;
  }
  if (givers == 1) return ncclSuccess;
  return fail(ncclInvalidUsage, "ncclCommGrow: ", givers,
              " ranks of comm passed a uniqueId; exactly one has to");
}

ncclResult_t grow(ncclComm_t comm, int nranks, const ncclUniqueId* id, int rank,
                  ncclComm_t* newcomm, const ncclConfig_t* config) {
  constexpr const char* kName = "ncclCommGrow";
  if (newcomm == nullptr)
    return fail_in_group(ncclInvalidArgument, "ncclCommGrow: newcomm is NULL");
  if (comm == nullptr) {
    if (id == nullptr || rank < 0) {
      return fail_in_group(ncclInvalidArgument,
                           "ncclCommGrow: a rank that joins (comm is NULL) passes a uniqueId and "
                           "its rank");
    }
    return init(kName, newcomm, nranks, *id, rank, config);
  }
  int own_rank = 0, count = 0;
  if (const auto bad = check_parent(kName, comm, own_rank, count); bad != ncclSuccess) return bad;
  if (rank != -1 || nranks <= count) {
    return fail_in_group(ncclInvalidArgument, "ncclCommGrow on rank ", own_rank, " of ", count,
                         ": a rank of comm passes -1 as its rank, and nRanks is the larger new "
                         "number of ranks; they are ",
                         rank, " and ", nranks);
  }
  if (group().depth > 0) {
    return fail_in_group(ncclInvalidUsage,
                         "ncclCommGrow cannot be part of a group: the ranks of comm first have to "
                         "hear of the uniqueId");
  }
  ncclUniqueId agreed;
  if (const auto bad = spread_id(comm, count, id, agreed); bad != ncclSuccess) return bad;
  return init(kName, newcomm, nranks, agreed, own_rank, config);
}

} // namespace

WHORL_NCCL_DEFINE(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * uniqueId)) {
  return report(whorlGetUniqueId(reinterpret_cast<whorlUniqueId*>(uniqueId)));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommInitRank,
                  (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank)) {
  return init("ncclCommInitRank", comm, nranks, commId, rank, nullptr);
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommInitRankConfig,
                  (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank,
                   ncclConfig_t* config)) {
  return init("ncclCommInitRankConfig", comm, nranks, commId, rank, config);
}

// Creates a communicator. In NCCL several ids spread the work of the rendezvous; here that work is
// short, and the first id serves all ranks.
WHORL_NCCL_DEFINE(ncclResult_t, ncclCommInitRankScalable,
                  (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
                   ncclConfig_t* config)) {
  if (commIds == nullptr || nId < 1 || nId > nranks) {
    return fail_in_group(ncclInvalidArgument, "ncclCommInitRankScalable: nId is ", nId,
                         "; there must be from 1 to nranks (", nranks, ") ids in commIds");
  }
  return init("ncclCommInitRankScalable", newcomm, nranks, commIds[0], myrank, config);
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommInitAll,
                  (ncclComm_t * comm, int ndev, const int* devlist)) {
  find_driver();
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
  Options options;
  if (const auto bad = options.read("ncclCommSplit", config); bad != ncclSuccess) return bad;
  // Without options the child inherits those of its parent.
  return report(whorlCommSplit(inner(comm), color, key, inner(newcomm),
                               config == nullptr ? nullptr : &options.value));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommShrink,
                  (ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                   ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags)) {
  return guarded("ncclCommShrink", [&] {
    return shrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
  });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int revokeFlags)) {
  return comm == nullptr ? ncclSuccess : report(whorlCommRevoke(inner(comm), revokeFlags));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId* uniqueId)) {
  int rank = 0;
  if (const whorlResult_t result = whorlCommUserRank(inner(comm), &rank); result != whorlSuccess) {
    return report(result);
  }
  return report(whorlGetUniqueId(reinterpret_cast<whorlUniqueId*>(uniqueId)));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommGrow,
                  (ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank,
                   ncclComm_t* newcomm, ncclConfig_t* config)) {
  return guarded("ncclCommGrow",
                 [&] { return grow(comm, nRanks, uniqueId, rank, newcomm, config); });
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommFinalize, (ncclComm_t comm)) {
  return comm == nullptr ? ncclSuccess : report(whorlCommFinalize(inner(comm)));
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommDestroy, (ncclComm_t comm)) {
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
