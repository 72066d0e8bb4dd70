// The host's side of communication from kernels. There is none; what only describes the ranks is
// answered, so that a program can find out.
#include <algorithm>
#include <cstring>

#include "bindings/nccl/support.h"

using namespace whorl_nccl; // NOLINT: the bridge between the two worlds

namespace {

/// All ranks of a communicator; empty if it is none.
ncclTeam world(ncclComm_t comm) noexcept {
  ncclTeam team{.nRanks = 0, .rank = 0, .stride = 1};
  if (report(whorlCommCount(inner(comm), &team.nRanks)) == ncclSuccess) {
    report(whorlCommUserRank(inner(comm), &team.rank));
  }
  return team;
}

/// The calling rank alone: no rank can reach the device memory of another one.
ncclTeam alone(ncclComm_t comm) noexcept {
  return {.nRanks = std::min(world(comm).nRanks, 1), .rank = 0, .stride = 1};
}

} // namespace

WHORL_NCCL_DEFINE(ncclTeam, ncclTeamWorld, (ncclComm_t comm)) { return world(comm); }

WHORL_NCCL_DEFINE(ncclTeam, ncclTeamLsa, (ncclComm_t comm)) { return alone(comm); }

// One rank is one team in every mode.
WHORL_NCCL_DEFINE(ncclTeam, ncclTeamCft, (ncclComm_t comm, ncclCftTeamMode_t mode)) {
  static_cast<void>(mode);
  return alone(comm);
}

WHORL_NCCL_DEFINE(ncclTeam, ncclTeamCftMultimem, (ncclComm_t comm)) { return alone(comm); }

WHORL_NCCL_DEFINE(ncclTeam, ncclTeamRail, (ncclComm_t comm)) { return world(comm); }

WHORL_NCCL_DEFINE(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam team, int rank)) {
  return world(comm).rank + (rank - team.rank) * team.stride;
}

WHORL_NCCL_DEFINE(int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam team, int rank)) {
  static_cast<void>(comm);
  return (rank - team.rank) * team.stride;
}

WHORL_NCCL_DEFINE(int, ncclLLA2ACalcSlots, (int maxElts, int maxEltSize)) {
  return maxElts * ((maxEltSize + 7) / 8); // slots carry 8 bytes
}

WHORL_NCCL_DEFINE(ncclResult_t, ncclCommQueryProperties,
                  (ncclComm_t comm, ncclCommProperties* props)) {
  constexpr std::size_t kHead = offsetof(ncclCommProperties, rank);
  ncclCommProperties answer{};
  ncclResult_t result = report(whorlCommCount(inner(comm), &answer.nRanks));
  if (result == ncclSuccess) result = report(whorlCommUserRank(inner(comm), &answer.rank));
  if (result == ncclSuccess) result = report(whorlCommCuDevice(inner(comm), &answer.cudaDev));
  if (result != ncclSuccess) return result;
  if (props == nullptr || props->magic != NCCL_CONFIG_MAGIC || props->size < kHead) {
    return fail(ncclInvalidArgument,
                "ncclCommQueryProperties: props was not initialised; start from "
                "NCCL_COMM_PROPERTIES_INITIALIZER");
  }
  answer.nvmlDev = -1;
  answer.nLsaTeams = answer.nRanks;
  // Of a longer structure, which a newer program has, the rest is what the initializer made it.
  std::memcpy(reinterpret_cast<char*>(props) + kHead,
              reinterpret_cast<const char*>(&answer) + kHead,
              std::min(props->size, sizeof answer) - kHead);
  return ncclSuccess;
}
