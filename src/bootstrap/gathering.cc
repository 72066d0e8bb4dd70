#include "bootstrap/gathering.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "base/printable.h"
#include "bootstrap/root.h"
#include "launchers/launcher.h"

namespace whorl {

namespace {

/// Place for what rank 0 shares.
using RootValue = std::array<std::byte, KeyValue::kMaxValueBytes>;

/// Starts the root of a launch, and writes its encoded id to the front of `out`.
Status start_for(const Launch& launch, std::uint64_t timeout_ns, RootValue& out) {
  const bool this_host = launch.local_nranks == launch.nranks;
  const auto id = start_root(this_host ? RootScope::kThisHost : RootScope::kAnywhere, timeout_ns);
  if (!id.ok()) return id.status();
  const auto encoded = id->encode();
  if (!encoded.ok()) return encoded.status();
  std::copy(encoded->begin(), encoded->end(), out.begin());
  return {};
}

// Without a root rank 0 shares, in place of an id: as many zeros, the code and the reason. The
// exchange ends on all ranks, and the next one may begin.

/// Writes the failure to the front of `out`, and returns its size. Allocates nothing, because
/// memory may be what there is too little of.
std::size_t write_failure(const Status& why, RootValue& out) {
  out.fill({});
  out[UniqueId::kBytes] = static_cast<std::byte>(why.code());
  const auto text = std::as_bytes(std::span(why.message()));
  const auto place = std::span(out).subspan(UniqueId::kBytes + 1);
  const std::size_t size = std::min(text.size(), place.size());
  std::copy_n(text.begin(), size, place.begin());
  return UniqueId::kBytes + 1 + size;
}

/// Returns the error of a rank 0 that has shared write_failure()'s value.
Status check_root(std::span<const std::byte> shared) {
  if (shared.size() <= UniqueId::kBytes) return {};
  const auto code = std::to_integer<std::uint32_t>(shared[UniqueId::kBytes]);
  const auto text = shared.subspan(UniqueId::kBytes + 1);
  return Status::error(
      code >= 1 && code <= kLastErrorCode ? static_cast<Code>(code) : Code::kRemoteError,
      "rank 0 could not open the place where ranks meet: " +
          printable({reinterpret_cast<const char*>(text.data()), text.size()}));
}

} // namespace

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
  RootValue value{};
  std::size_t size = UniqueId::kBytes;
  Status made;
  if (launch.rank == 0) {
    made = without_exceptions([&] { return start_for(launch, timeout_ns, value); });
    if (!made.ok()) size = write_failure(made, value);
  }
  const auto shared = share(launch, std::span(value).first(size),
                            static_cast<std::int64_t>(timeout_ns / 1'000'000));
  if (!made.ok()) return made;
  if (!shared.ok()) return shared.status();
  WHORL_TRY(check_root(*shared).with_context(context));
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
