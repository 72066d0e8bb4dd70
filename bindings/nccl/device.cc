// Host side of communication from kernels. There is no such communication; functions that only
// describe the ranks answer, so that a program can find out.
#include <algorithm>
#include <cstring>

#include "bindings/nccl/support.h"

using namespace whorl_nccl; // NOLINT: joins the names of both libraries

namespace {

/// Returns the team of all ranks of a communicator; empty if the handle is invalid.
ncclTeam world(ncclComm_t comm) noexcept {
  ncclTeam team{.nRanks = 0, .rank = 0, .stride = 1};
  if (report(whorlCommCount(inner(comm), &team.nRanks)) == ncclSuccess) {
    report(whorlCommUserRank(inner(comm), &team.rank));
  }
  return team;
}

/// Returns the team of the calling rank alone: no kernel can reach the device memory of another
/// rank.
ncclTeam alone(ncclComm_t comm) noexcept {
  return {.nRanks = std::min(world(comm).nRanks, 1), .rank = 0, .stride = 1};
}

} // namespace

WHORL_NCCL_DEFINE(ncclTeam, ncclTeamWorld, (ncclComm_t comm)) { return world(comm); }

WHORL_NCCL_DEFINE(ncclTeam, ncclTeamLsa, (ncclComm_t comm)) { return alone(comm); }

// Returns a team of one rank in every mode.
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
  // Copy no more than the program's structure has. In a longer structure of a newer program the
  // rest keeps the initializer's values.
  std::memcpy(reinterpret_cast<char*>(props) + kHead,
              reinterpret_cast<const char*>(&answer) + kHead,
              std::min(props->size, sizeof answer) - kHead);
  return ncclSuccess;
}
