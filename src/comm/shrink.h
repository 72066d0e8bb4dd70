#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "comm/communicator.h"

namespace whorl {

/// Returns the ranks of a communicator that are known to have died or left, ascending.
std::vector<int> lost_ranks(const Communicator& communicator);

/// Returns the ranks of a communicator that are not in a list, ascending.
std::vector<int> ranks_without(const Communicator& parent, std::span<const int> excluded);

/// Way in which the ranks that remain meet.
using MeetRemaining =
    std::function<Result<Gathering>(std::uint64_t timeout_ns, const CommError& comm_error)>;

/// Makes something of the ranks of a communicator that remain, by `make(meet)`, which each of them
/// calls to meet the others. Ranks in `excluded` do not remain; if it is empty, those do not that
/// are known to be lost, and `make` is called again if more are lost before the others have met. An
/// error says what ranks the new numbers in it stand for.
Status shrink(const Communicator& parent, std::span<const int> excluded,
              const std::function<Status(const MeetRemaining& meet)>& make);

/// Gathers the ranks of a communicator that remain, in the order of their ranks; only these call
/// this, each with the same list (ascending; this rank is in it). The communicator may have failed:
/// the ranks meet at a place of the lowest one, which all know from the set-up of the parent, and
/// prove who they are by the parent's secret. Fails as soon as one of them is known to be lost, and
/// `patience_ns` after ranks have found that their lists differ. `have_come` receives whether all
/// had come in the last attempt.
Result<Gathering> meet_by_shrink(const Communicator& parent, std::span<const int> remaining,
                                 const CommError& comm_error, std::uint64_t timeout_ns,
                                 std::uint64_t patience_ns, bool* have_come);

} // namespace whorl
