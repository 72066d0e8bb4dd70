// Making communicators of parts of others, and going on after failures.
#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <span>
#include <vector>

#include "api/create.h"
#include "api/group.h"
#include "api/support.h"
#include "comm/shrink.h"

using namespace whorl;       // NOLINT: this file is the bridge between the two worlds
using namespace whorl::capi; // NOLINT

namespace {

/// Returns the options of a communicator that is made out of `parent`: without a config those of
/// the parent.
Result<Options> inherited_options(const whorlComm& parent, const whorlConfig_t* config) {
  auto options =
      config != nullptr ? make_options(config) : Result<Options>(parent.communicator->options());
  if (!options.ok()) return options;
  if (config == nullptr) {
    options->timeout_ns = parent.communicator->policy().timeout_ns; // may have been set
  }
  options->made_of_another = true;
  return options;
}

/// Checks the ranks that are to leave.
Status check_excluded(const Communicator& parent, std::span<const int> excluded) {
  for (std::size_t i = 0; i < excluded.size(); ++i) {
    if (excluded[i] < 0 || excluded[i] >= parent.nranks()) {
      return invalid(fmt::format("excludeRanksList[{}] is {}; it must be a rank from 0 to {}", i,
                                 excluded[i], parent.nranks() - 1));
    }
  }
  if (std::find(excluded.begin(), excluded.end(), parent.rank()) != excluded.end()) {
    return invalid(
        fmt::format("rank {}, which made the call, is in excludeRanksList; ranks that "
                    "leave do not make the call",
                    parent.rank()));
  }
  return {};
}

/// Checks the other arguments of a shrink.
Status check_shrink(const int* excluded, int count, int flags) {
  if (count < 0) {
    return invalid("excludeRanksList is empty, or excludeRanksCount is negative");
  }
  if (count > 0 && excluded == nullptr) {
    return invalid(fmt::format("excludeRanksCount is {} and excludeRanksList is NULL", count));
  }
  if ((flags & ~WHORL_SHRINK_ABORT) == 0) return {};
  return invalid(fmt::format(
      "shrinkFlags is {}; use WHORL_SHRINK_DEFAULT (0) or WHORL_SHRINK_ABORT (1)", flags));
}

/// Tells the ranks that remain why this rank does not meet them, so that they do not wait for it. A
/// rank that is to leave by its own list has no place among them.
void tell_remaining(const Communicator& parent, const std::vector<int>& excluded, const Status& why,
                    std::uint64_t timeout_ns) {
  const auto remaining = ranks_without(parent, excluded.empty() ? lost_ranks(parent) : excluded);
  if (std::find(remaining.begin(), remaining.end(), parent.rank()) == remaining.end()) return;
  CommError reason;
  reason.set(why);
  bool have_come = false;
  static_cast<void>(meet_by_shrink(parent, remaining, reason, timeout_ns, 0, &have_come));
}

/// Makes sure that a communicator which is to be shrunk is idle or has failed.
Status prepare_to_shrink(Communicator& parent, bool may_abort) {
  if (may_abort) {
    parent.abort(Status::error(
        Code::kRemoteError,
        fmt::format("{} has called whorlCommShrink", parent.membership().describe(parent.rank()))));
    static_cast<void>(parent.drain()); // the streams have the errors
    return {};
  }
  const Status state = parent.state();
  if (state.ok()) return parent.drain();
  return Status::error(Code::kInvalidUsage,
                       fmt::format("comm has failed, so that WHORL_SHRINK_ABORT is needed; it "
                                   "failed with: {}",
                                   state.message()));
}

/// Makes the communicator of the ranks that remain.
Status shrink(whorlComm& handle, std::span<const int> excluded, bool may_abort,
              const Options& options, whorlComm_t* out) {
  Communicator& parent = *handle.communicator;
  WHORL_TRY(prepare_to_shrink(parent, may_abort));
  return shrink(parent, excluded, [&](const MeetRemaining& meet) {
    return create(out, options, true, meet, &handle);
  });
}

/// Runs a part of a split, and ends the parent if there is no memory for it: the other ranks wait
/// for the next round of this one.
template <class Body>
Status end_parent_without_memory(Communicator& parent, Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    parent.abort(Status::error(Code::kSystemError,
                               fmt::format("{} has run out of memory in a split",
                                           parent.membership().describe(parent.rank()))));
    throw;
  }
}

/// Makes a communicator out of `comm` at once, or at the end of the open group.
template <class Make>
Status make_or_collect(const char* function, whorlComm_t comm, Make&& make) {
  auto job = [function, comm, make = std::forward<Make>(make)](const Status& refused) -> Status {
    WHORL_TRY(refused);
    const Inside working(comm);
    WHORL_TRY(check_ready(function, comm)); // the group may have waited for long
    Status status = make();
    if (status.ok()) return status; // without an allocation, which could fail on this rank alone
    status =
        status.with_context(fmt::format("{} on rank {}", function, comm->communicator->rank()));
    comm->set_error(status);
    return status;
  };
  if (!Group::current().open()) return job({});
  Group::current().add_job(comm, std::move(job));
  return {};
}

} // namespace

extern "C" {

whorlResult_t whorlCommSplit(whorlComm_t comm, int color, int key, whorlComm_t* newcomm,
                             whorlConfig_t* config) {
  return collectable("whorlCommSplit", [&]() -> Status {
    if (!Group::open()) WHORL_TRY(check_may_wait("whorlCommSplit"));
    const Inside inside(comm);
    WHORL_TRY(check_ready("whorlCommSplit", comm));
    return end_parent_without_memory(*comm->communicator, [&] {
      // Wrong arguments and options are told to the other ranks, which make the call, too.
      const Status arguments = check_out(newcomm, "newcomm");
      if (newcomm != nullptr) *newcomm = nullptr;
      auto make = [=, options = arguments.ok() ? inherited_options(*comm, config)
                                               : Result<Options>(arguments)] {
        return end_parent_without_memory(
            *comm->communicator, [&] { return create_split(newcomm, *comm, color, key, options); });
      };
      return make_or_collect("whorlCommSplit", comm, std::move(make));
    });
  });
}

whorlResult_t whorlCommShrink(whorlComm_t comm, const int* excludeRanksList, int excludeRanksCount,
                              whorlComm_t* newcomm, whorlConfig_t* config, int shrinkFlags) {
  constexpr const char* kName = "whorlCommShrink";
  return collectable(kName, [&]() -> Status {
    if (!Group::open()) WHORL_TRY(check_may_wait(kName));
    const Inside inside(comm);
    WHORL_TRY(check_created(kName, comm));
    if (newcomm != nullptr) *newcomm = nullptr;
    std::vector<int> excluded;
    if (excludeRanksCount > 0 && excludeRanksList != nullptr) {
      excluded.assign(excludeRanksList, excludeRanksList + excludeRanksCount);
    }
    // A wrong argument is an error before anything is aborted.
    const auto check = [&]() -> Status {
      WHORL_TRY(check_not_finalized(*comm));
      WHORL_TRY(check_out(newcomm, "newcomm"));
      WHORL_TRY(check_shrink(excludeRanksList, excludeRanksCount, shrinkFlags));
      return check_excluded(*comm->communicator, excluded);
    };
    const Status arguments = check();
    auto options = arguments.ok() ? inherited_options(*comm, config) : Result<Options>(arguments);
    if (!options.ok()) {
      if (!comm->leaving && check_may_wait(kName).ok()) {
        tell_remaining(*comm->communicator, excluded, options.status(),
                       Group::open() ? kTellNs : kTellRefusedNs);
      }
      return options.status().with_context(kName);
    }
    return make_or_collect(kName, comm, [=, options = *std::move(options)] {
      return shrink(*comm, excluded, shrinkFlags != 0, options, newcomm);
    });
  });
}

whorlResult_t whorlCommRevoke(whorlComm_t comm, int revokeFlags) {
  constexpr const char* kName = "whorlCommRevoke";
  return guarded(kName, comm, [&]() -> Status {
    if (comm == nullptr) return {};
    WHORL_TRY(check_ready(kName, comm));
    if (revokeFlags != WHORL_REVOKE_DEFAULT) {
      return invalid(kName,
                     fmt::format("revokeFlags is {}; use WHORL_REVOKE_DEFAULT (0)", revokeFlags));
    }
    Communicator& communicator = *comm->communicator;
    communicator.abort(Status::error(
        Code::kRemoteError, fmt::format("{} has called whorlCommRevoke",
                                        communicator.membership().describe(communicator.rank()))));
    return {};
  });
}

} // extern "C"
