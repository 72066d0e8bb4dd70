#include "bootstrap/gathering.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "bootstrap/shared_root.h"
#include "launchers/launcher.h"

namespace whorl {

Result<Gathering> meet_by_launcher(std::uint64_t timeout_ns, const CommError& comm_error) {
  const auto launch = detect_launch();
  if (!launch.ok()) return launch.status();
  return meet_by_launch(*launch, timeout_ns, comm_error);
}

Result<Gathering> meet_by_launch(const Launch& launch, std::uint64_t timeout_ns,
                                 const CommError& comm_error) {
  const Attendant self{.rank = launch.rank,
                       .nranks = launch.nranks,
                       .timeout_ns = timeout_ns,
                       .comm_error = &comm_error};
  const std::string context =
      fmt::format("rank {} of {} as started by {}", launch.rank, launch.nranks, launch.source);
  const auto done = [&](Result<Rendezvous> met) -> Result<Gathering> {
    if (!met.ok()) return met.status().with_context(context);
    return Gathering{.oob = std::move(met->oob),
                     .identity = met->identity,
                     .rank = launch.rank,
                     .nranks = launch.nranks};
  };
  if (launch.store == nullptr && !launch.address.empty()) {
    return done(meet_by_address(launch.address, self));
  }
  if (launch.store == nullptr) { // one rank
    auto alone = meet_in_process(1, timeout_ns);
    if (!alone.ok()) return alone.status();
    return std::move(alone->front());
  }
  // Exchanges of the launcher may not be left in the middle, so that they cannot tell an error.
  if (comm_error.is_set()) return comm_error.status();
  // Rank 0 makes an id; the launcher's own key-value space carries it to the others.
  static_assert(SharedRoot::kMaxBytes <= KeyValue::kMaxValueBytes);
  SharedRoot root;
  Status made;
  if (launch.rank == 0) {
    const bool this_host = launch.local_nranks == launch.nranks;
    made = start_shared_root(this_host ? RootScope::kThisHost : RootScope::kAnywhere, timeout_ns,
                             root);
  }
  // Also after a failure: the exchange ends on all ranks, and the next one may begin.
  const auto shared =
      share(launch, root.value(), static_cast<std::int64_t>(timeout_ns / 1'000'000));
  if (!made.ok()) return made;
  if (!shared.ok()) return shared.status();
  WHORL_TRY(check_shared_root(*shared).with_context(context));
  std::array<std::byte, UniqueId::kBytes> bytes{};
  if (shared->size() != bytes.size()) {
    return Status::error(Code::kSystemError,
                         fmt::format("{} gave {} bytes instead of the {} that rank 0 stored",
                                     launch.source, shared->size(), bytes.size()));
  }
  std::copy(shared->begin(), shared->end(), bytes.begin());
  const auto id = UniqueId::decode(bytes);
  if (!id.ok()) return id.status();
  return done(meet_by_id(*id, self));
}

} // namespace whorl
