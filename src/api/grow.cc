// Making communicators of more ranks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "api/create.h"
#include "api/group.h"
#include "api/support.h"

using namespace whorl;       // NOLINT: this file is the bridge between the two worlds
using namespace whorl::capi; // NOLINT

namespace {

constexpr const char* kGrow = "whorlCommGrow";

/// Checks the ids of a creation with several, but not `nranks`.
Status check_ids(const whorlUniqueId* ids, int count, int nranks) {
  if (ids != nullptr && count >= 1 && (count <= nranks || nranks < 1)) return {};
  return invalid(fmt::format("nId is {}{}; there must be from 1 to nranks ({}) ids in commIds",
                             count, ids == nullptr ? " and commIds is NULL" : "", nranks));
}

/// Returns the id that exactly one rank of `comm` has passed.
Result<whorlUniqueId> spread_id(whorlComm_t comm, const whorlUniqueId* own) {
  struct Entry {
    char present;
    whorlUniqueId id;
  };
  if (const Status state = comm->communicator->state(); !state.ok()) {
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("comm has failed, and its ranks meet through it; abort it and create a "
                    "communicator from a new whorlUniqueId. It failed with: {}",
                    state.message()));
  }
  Entry mine{};
  if (own != nullptr) mine = {1, *own};
  std::vector<Entry> all(static_cast<std::size_t>(comm->communicator->nranks()));
  if (const whorlResult_t result =
          whorlAllGather(&mine, all.data(), sizeof mine, whorlUint8, comm, nullptr);
      result != whorlSuccess) {
    return Status::error(static_cast<Code>(result), last_error());
  }
  std::vector<std::size_t> givers;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].present == 0) continue;
    mine = all[rank];
    givers.push_back(rank);
  }
  if (givers.size() == 1) return mine.id;
  return Status::error(
      Code::kInvalidUsage,
      fmt::format("{} of comm passed a uniqueId; exactly one rank has to",
                  givers.empty() ? std::string("no rank")
                                 : fmt::format("ranks {}", fmt::join(givers, ", "))));
}

/// Makes the larger communicator on a rank of `comm`.
Status grow_parent(whorlComm_t comm, int nranks, const whorlUniqueId* id, int rank,
                   whorlComm_t* out, whorlConfig_t* config) {
  const Inside inside(comm);
  WHORL_TRY(check_ready(kGrow, comm));
  Communicator& parent = *comm->communicator;
  if (Group::open()) {
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("{} cannot be part of a group: the ranks of comm first have to "
                    "hear of the uniqueId",
                    kGrow));
  }
  WHORL_TRY(check_may_wait(kGrow));
  const auto agreed = spread_id(comm, id);
  // The ranks that join know nothing of comm: a rank that knows where they wait tells them.
  if (!agreed.ok() && id == nullptr) return agreed.status().with_context(kGrow);
  Status arguments = agreed.status();
  if (arguments.ok() && (rank != -1 || nranks <= parent.nranks())) {
    arguments = invalid(
        fmt::format("a rank of comm passes -1 as its rank, and nRanks is the new number of ranks, "
                    "larger than {}; they are {} and {}",
                    parent.nranks(), rank, nranks));
  }
  return init_rank(kGrow, out, nranks, agreed.ok() ? *agreed : *id, parent.rank(), config,
                   arguments, comm);
}

} // namespace

extern "C" {

whorlResult_t whorlCommInitRankScalable(whorlComm_t* newcomm, int nranks, int myrank, int nId,
                                        whorlUniqueId* commIds, whorlConfig_t* config) {
  constexpr const char* kName = "whorlCommInitRankScalable";
  return collectable(kName, [&]() -> Status {
    const Status arguments = check_ids(commIds, nId, nranks);
    if (commIds == nullptr || nId < 1) return arguments.with_context(kName);
    return init_rank(kName, newcomm, nranks, commIds[0], myrank, config, arguments);
  });
}

whorlResult_t whorlCommGetUniqueId(whorlComm_t comm, whorlUniqueId* uniqueId) {
  constexpr const char* kName = "whorlCommGetUniqueId";
  return guarded(kName, comm, [&]() -> Status {
    WHORL_TRY(check_created(kName, comm));
    return make_id(kName, uniqueId);
  });
}

whorlResult_t whorlCommGrow(whorlComm_t comm, int nRanks, const whorlUniqueId* uniqueId, int rank,
                            whorlComm_t* newcomm, whorlConfig_t* config) {
  return collectable(kGrow, [&]() -> Status {
    if (comm != WHORL_COMM_NULL) return grow_parent(comm, nRanks, uniqueId, rank, newcomm, config);
    if (uniqueId == nullptr) {
      return invalid(kGrow, "a rank that joins (comm is NULL) passes a uniqueId and its rank");
    }
    return init_rank(kGrow, newcomm, nRanks, *uniqueId, rank, config);
  });
}

} // extern "C"
