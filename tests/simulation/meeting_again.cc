#include "simulation/meeting_again.h"

#include "comm/shrink.h"

namespace whorl::simulation {
namespace {

/// Meets the ranks that remain, and asks them who they are.
Status meet(const MeetRemaining& meet, int rank, const CommError& error, MetAgain& self) {
  auto met = meet(CommWorld::kTimeoutNs, error);
  if (!met.ok()) return met.status();
  self.identity = met->identity;
  std::vector<int> members(static_cast<std::size_t>(met->nranks));
  WHORL_TRY(met->oob->allgather(std::as_bytes(std::span(&rank, 1)),
                                std::as_writable_bytes(std::span(members))));
  world().require(members[static_cast<std::size_t>(met->rank)] == rank,
                  "rank {} has become {}, where {} is", rank, met->rank,
                  members[static_cast<std::size_t>(met->rank)]);
  self.members = std::move(members);
  return {};
}

} // namespace

void meet_again(CommRank& rank, std::span<const int> excluded, MetAgain& self) {
  rank.comm->abort(Status::error(Code::kRemoteError, "a rank goes on without others"));
  const CommError error;
  self.shrinks = true;
  self.error = shrink(*rank.comm, excluded, [&](const MeetRemaining& way) {
    return meet(way, rank.number, error, self);
  });
  world().note("shrinks: {} of {} ranks, {}", self.members.size(), rank.comm->nranks(),
               self.error.message());
}

} // namespace whorl::simulation
