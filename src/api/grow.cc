// Making communicators of more ranks.
#include <fmt/core.h>

#include <vector>

#include "api/create.h"
#include "api/group.h"
#include "api/support.h"

using namespace whorl;       // NOLINT: this file is the bridge between the two worlds
using namespace whorl::capi; // NOLINT

namespace {

constexpr const char* kGrow = "whorlCommGrow";

/// Returns the id that exactly one rank of `comm` has passed.
Result<whorlUniqueId> spread_id(whorlComm_t comm, const whorlUniqueId* own) {
  struct Entry {
    char present;
    whorlUniqueId id;
  };
  Entry mine{};
  if (own != nullptr) mine = {1, *own};
  std::vector<Entry> all(static_cast<std::size_t>(comm->communicator->nranks()));
  if (const whorlResult_t result =
          whorlAllGather(&mine, all.data(), sizeof mine, whorlUint8, comm, nullptr);
      result != whorlSuccess) {
    return Status::error(static_cast<Code>(result), last_error()).with_context(kGrow);
  }
  int givers = 0;
  for (const Entry& entry : all) {
    if (entry.present == 0) continue;
    mine = entry;
    ++givers;
  }
  if (givers == 1) return mine.id;
  return Status::error(
      Code::kInvalidUsage,
      fmt::format("{}: {} ranks of comm passed a uniqueId; exactly one has to", kGrow, givers));
}

/// Makes the larger communicator on a rank of `comm`.
Status grow_parent(whorlComm_t comm, int nranks, const whorlUniqueId* id, int rank,
                   whorlComm_t* out, whorlConfig_t* config) {
  const Inside inside(comm);
  WHORL_TRY(check_ready(kGrow, comm));
  Communicator& parent = *comm->communicator;
  if (const Status state = parent.state(); !state.ok()) {
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("{}: comm has failed, and its ranks meet through it; abort it and create a "
                    "communicator from a new whorlUniqueId. It failed with: {}",
                    kGrow, state.message()));
  }
  if (rank != -1 || nranks <= parent.nranks()) {
    return invalid(kGrow,
                   fmt::format("rank {} of {}: a rank of comm passes -1 as its rank, and "
                               "nRanks is the larger new number of ranks; they are {} and {}",
                               parent.rank(), parent.nranks(), rank, nranks));
  }
  if (Group::open()) {
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("{} cannot be part of a group: the ranks of comm first have to "
                    "hear of the uniqueId",
                    kGrow));
  }
  WHORL_TRY(check_may_wait(kGrow));
  const auto agreed = spread_id(comm, id);
  if (!agreed.ok()) return agreed.status();
  return init_rank(kGrow, out, nranks, *agreed, parent.rank(), config);
}

} // namespace

extern "C" {

whorlResult_t whorlCommInitRankScalable(whorlComm_t* newcomm, int nranks, int myrank, int nId,
                                        whorlUniqueId* commIds, whorlConfig_t* config) {
  constexpr const char* kName = "whorlCommInitRankScalable";
  return collectable(kName, [&]() -> Status {
    if (commIds == nullptr || nId < 1 || nId > nranks) {
      return invalid(kName, fmt::format("nId is {}; there must be from 1 to nranks ({}) ids in "
                                        "commIds",
                                        nId, nranks));
    }
    return init_rank(kName, newcomm, nranks, commIds[0], myrank, config);
  });
}

whorlResult_t whorlCommGetUniqueId(whorlComm_t comm, whorlUniqueId* uniqueId) {
  constexpr const char* kName = "whorlCommGetUniqueId";
  return guarded(kName, comm, [&]() -> Status {
    WHORL_TRY(check_created(kName, comm));
    if (whorlGetUniqueId(uniqueId) == whorlSuccess) return {};
    return Status::error(Code::kInvalidArgument, last_error()).with_context(kName);
  });
}

whorlResult_t whorlCommGrow(whorlComm_t comm, int nRanks, const whorlUniqueId* uniqueId, int rank,
                            whorlComm_t* newcomm, whorlConfig_t* config) {
  return collectable(kGrow, [&]() -> Status {
    if (newcomm == nullptr) return invalid(kGrow, "newcomm is NULL");
    if (comm != WHORL_COMM_NULL) return grow_parent(comm, nRanks, uniqueId, rank, newcomm, config);
    if (uniqueId == nullptr || rank < 0) {
      return invalid(kGrow, "a rank that joins (comm is NULL) passes a uniqueId and its rank");
    }
    return init_rank(kGrow, newcomm, nRanks, *uniqueId, rank, config);
  });
}

} // extern "C"
