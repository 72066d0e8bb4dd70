#include "comm/shrink.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "base/bytes.h"
#include "base/hash.h"
#include "bootstrap/root.h"
#include "bootstrap/root_client.h"
#include "net/listener.h"
#include "net/secret.h"

namespace whorl {
namespace {

/// Derives job and secret of the meetings of a communicator's remaining ranks at one of them.
Result<Identity> identity_of(const Membership& parent, int root) {
  ByteWriter salt;
  salt.put(parent.identity.job);
  salt.put(root);
  salt.put_bytes(std::as_bytes(std::span("remaining")));
  Identity identity;
  if (!derive_identity(parent.identity.secret, salt.bytes(), &identity)) {
    return Status::error(Code::kInternalError, "HMAC-SHA256 failed");
  }
  return identity;
}

/// Returns the unix socket of the meetings.
SocketAddress local_place(const Identity& identity) {
  std::uint64_t number = 0;
  std::memcpy(&number, identity.job.data(), sizeof number);
  return SocketAddress::unix_name(fmt::format("r{:016x}", number));
}

/// Listens at a place that a meeting before this one may occupy for a little longer. A rank that
/// only tells why it does not come need not wait: the others hear of a failure there, though
/// perhaps of an earlier one.
Result<Fd> listen_soon(const SocketAddress& address, const Attendant& self) {
  constexpr std::uint64_t kWaitNs = 5'000'000'000, kPauseNs = 20'000'000;
  const bool excused = self.excused();
  const std::uint64_t deadline = sys().now_ns() + kWaitNs;
  for (;;) {
    Result<Fd> socket = listen_at(address);
    if (socket.ok() || excused || sys().now_ns() >= deadline) return socket;
    if (self.excused()) return self.comm_error->status();
    WHORL_TRY(self.check());
    sys().sleep_ns(kPauseNs);
  }
}

/// Opens the places at which this rank meets the others.
Result<std::vector<Fd>> open_places(std::span<const SocketAddress> places, const Attendant& self) {
  std::vector<Fd> sockets;
  Status refused;
  for (const SocketAddress& place : places) {
    auto socket = place.family() == AF_UNIX ? listen_soon(place, self) : listen_at(place);
    if (socket.ok()) {
      sockets.push_back(*std::move(socket));
    } else if (place.family() == AF_UNIX) {
      return socket.status();
    } else {
      refused = socket.status();
    }
  }
  const bool all_outer_refused = places.size() > 1 && sockets.size() == 1;
  if (all_outer_refused) return refused;
  return sockets;
}

/// Compares what the ranks want to do.
Status compare(Oob& oob, std::span<const int> remaining, int self) {
  Hash hash;
  for (const int rank : remaining) hash.mix(static_cast<std::uint64_t>(rank));
  const std::uint64_t mine = hash.value();
  std::vector<std::uint64_t> all(remaining.size());
  WHORL_TRY(
      oob.allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))));
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == mine) continue;
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("rank {} and rank {} exclude different ranks; rank {} keeps {}",
                    remaining[static_cast<std::size_t>(self)], remaining[i],
                    remaining[static_cast<std::size_t>(self)], fmt::join(remaining, ", ")));
  }
  return {};
}

/// Returns an error if a rank that is to remain is known to be lost.
Status check_remaining(const Communicator& parent, std::span<const int> remaining) {
  std::string lost;
  int count = 0;
  for (const int rank : remaining) {
    if (!parent.is_lost(rank)) continue;
    if (count++ > 0) lost += ", ";
    lost += parent.membership().describe(rank);
  }
  if (count == 0) return {};
  return Status::error(
      Code::kRemoteError,
      fmt::format("{} {} died, or left the communicator, and {} expected to remain", lost,
                  count == 1 ? "has" : "have", count == 1 ? "was" : "were"));
}

/// Waits until more ranks are known to be lost than `lost`, but not for long: the end of a
/// connection of the meeting may be seen first. Returns whether there are more.
bool are_more_lost(const Communicator& parent, const std::vector<int>& lost) {
  constexpr std::uint64_t kWaitNs = 50'000'000, kAskAgainNs = 2'000'000;
  const std::uint64_t until_ns = sys().now_ns() + kWaitNs;
  while (lost_ranks(parent) == lost) {
    if (sys().now_ns() >= until_ns) return false;
    sys().sleep_ns(kAskAgainNs);
  }
  return true;
}

/// Adds to an error after the meeting, which may be no more than the end of a connection, the names
/// of the ranks that are lost.
Status with_lost(const Communicator& parent, std::span<const int> remaining, const Status& status) {
  const Status lost = check_remaining(parent, remaining);
  if (lost.ok() || status.message().find(lost.message()) != std::string::npos) return status;
  return Status::error(lost.code(), fmt::format("{}: {}", lost.message(), status.message()));
}

/// Returns the place of the lowest rank that remains.
Result<RootPlace> place_of_root(const Communicator& parent, std::span<const int> remaining) {
  const Membership& members = parent.membership();
  const int root = remaining.front();
  const auto identity = identity_of(members, root);
  if (!identity.ok()) return identity.status();
  RootPlace place{
      .identity = *identity,
      .addresses = {local_place(*identity)},
      .same_user = false,
      .where = fmt::format("in {}, the lowest rank that remains", members.describe(root)),
      .gone = ""}; // that rank may come later
  const bool one_host = std::all_of(remaining.begin(), remaining.end(), [&](int rank) {
    return members.info(rank).host_key == members.info(root).host_key;
  });
  if (one_host) return place;
  const auto outer = parent.outer_addresses(root);
  if (!outer.ok()) return outer.status();
  place.addresses.insert(place.addresses.end(), outer->begin(), outer->end());
  return place;
}

/// Meets the others, or fails because some of them want something else. `have_come`: whether all of
/// them have come.
Result<Gathering> try_to_meet(const Communicator& parent, std::span<const int> remaining,
                              const Attendant& self, bool* have_come) {
  *have_come = false;
  const Membership& members = parent.membership();
  auto place = place_of_root(parent, remaining);
  if (!place.ok()) return place.status();
  if (self.rank == 0) {
    auto sockets = open_places(place->addresses, self);
    if (!sockets.ok()) return sockets.status();
    constexpr std::uint64_t kOwnJoinNs = 2'000'000'000; // limit until this rank joins
    WHORL_TRY(
        start_root_on(*std::move(sockets), place->identity,
                      {.join_timeout_ns = kOwnJoinNs, .port_is_users = true, .meets_again = true}));
  }
  if (members.info(parent.rank()).host_key == members.info(remaining.front()).host_key) {
    place->addresses.resize(1);
  } else {
    place->addresses.erase(place->addresses.begin());
  }
  auto met = join_root(self, *std::move(place));
  if (!met.ok()) return met.status();
  *have_come = true;
  WHORL_TRY(compare(*met->oob, remaining, self.rank));
  return Gathering{.oob = std::move(met->oob),
                   .identity = met->identity,
                   .rank = self.rank,
                   .nranks = self.nranks};
}

/// Adds to an error of the new communicator, which has numbers of its own, what they mean.
Status with_numbers(const Status& status, std::span<const int> remaining) {
  constexpr std::size_t kMaxNamed = 16;
  const auto named = remaining.first(std::min(remaining.size(), kMaxNamed));
  return Status::error(
      status.code(),
      fmt::format("{} (where ranks have numbers of the new communicator: it was to consist of the "
                  "old ranks {}{})",
                  status.message(), fmt::join(named, ", "),
                  named.size() < remaining.size() ? " …" : ""));
}

/// Returns the error of the last attempt, with that of the first one before it.
Status after(const Status& first, const Status& last) {
  return Status::error(last.code(), fmt::format("{}; then, without those that were lost: {}",
                                                first.message(), last.message()));
}

} // namespace

Status shrink(const Communicator& parent, std::span<const int> excluded,
              const std::function<Status(const MeetRemaining& meet)>& make) {
  // Lists that ranks make by themselves differ until the silence of a host is noticed everywhere.
  constexpr std::uint64_t kPatienceNs = 1'000'000'000, kPatienceOfFindersNs = 4'000'000'000;
  const bool finds_them = excluded.empty();
  Status first; // error of the first attempt
  for (;;) {
    const std::vector<int> lost = lost_ranks(parent);
    const std::vector<int> remaining =
        ranks_without(parent, finds_them ? std::span<const int>(lost) : excluded);
    bool have_come = false, have_met = false, stopped = false;
    const Status status = make([&](std::uint64_t timeout_ns, const CommError& comm_error) {
      // Ranks that had met before the death that ended an attempt do not come again.
      if (!first.ok()) timeout_ns = std::min(timeout_ns, kPatienceOfFindersNs);
      auto met = !first.ok() && comm_error.is_set()
                     ? Result<Gathering>(comm_error.status())
                     : meet_by_shrink(parent, remaining, comm_error, timeout_ns,
                                      finds_them ? kPatienceOfFindersNs : kPatienceNs, &have_come);
      have_met = met.ok();
      stopped = comm_error.is_set();
      return met;
    });
    if (status.ok()) return status;
    const bool more_are_lost = !stopped && (finds_them || have_come) && are_more_lost(parent, lost);
    // After the meeting a rank that has left the parent may be ahead, and no reason to go on alone.
    const bool another_is_lost = finds_them && !have_met && more_are_lost;
    const bool names_lost = have_come || another_is_lost || !first.ok();
    const Status reason =
        with_numbers(names_lost ? with_lost(parent, remaining, status) : status, remaining);
    if (!another_is_lost) {
      const Status last = first.ok() ? reason : after(first, reason);
      // Where pidfds are forbidden, ranks other than the lowest one do not see each other die.
      const bool may_be_unseen = finds_them && !have_come && last.code() == Code::kRemoteError;
      if (!may_be_unseen) return last;
      return Status::error(last.code(), last.message() +
                                            "; if another rank has died, which this one may not "
                                            "see, pass the ranks to exclude");
    }
    if (first.ok()) first = reason;
  }
}

std::vector<int> ranks_without(const Communicator& parent, std::span<const int> excluded) {
  std::vector<int> remaining;
  for (int rank = 0; rank < parent.nranks(); ++rank) {
    if (std::find(excluded.begin(), excluded.end(), rank) == excluded.end()) {
      remaining.push_back(rank);
    }
  }
  return remaining;
}

std::vector<int> lost_ranks(const Communicator& communicator) {
  std::vector<int> lost;
  for (int rank = 0; rank < communicator.nranks(); ++rank) {
    if (communicator.is_lost(rank)) lost.push_back(rank);
  }
  return lost;
}

Result<Gathering> meet_by_shrink(const Communicator& parent, std::span<const int> remaining,
                                 const CommError& comm_error, std::uint64_t timeout_ns,
                                 std::uint64_t patience_ns, bool* have_come) {
  // A rank that has not heard yet of a death, or is about to make another call, may come with
  // another list, and come again with this one.
  constexpr std::uint64_t kPauseNs = 20'000'000;
  std::uint64_t give_up_ns = 0;
  const auto own = std::find(remaining.begin(), remaining.end(), parent.rank());
  Attendant self{.rank = static_cast<int>(own - remaining.begin()),
                 .nranks = static_cast<int>(remaining.size()),
                 .timeout_ns = timeout_ns,
                 .comm_error = &comm_error,
                 .check = [&parent, remaining] { return check_remaining(parent, remaining); }};
  Status first;
  for (;;) {
    auto met = try_to_meet(parent, remaining, self, have_come);
    if (met.ok() || comm_error.is_set()) return met;
    if (first.ok()) {
      first = met.status();
      give_up_ns = sys().now_ns() + patience_ns;
    }
    const Status lost = self.check();
    if (!lost.ok()) return first.code() == Code::kRemoteError ? lost : first;
    if (sys().now_ns() >= give_up_ns) return first;
    // A rank that comes only now waits at this attempt, and is told the first reason at its end.
    self.timeout_ns = std::min(timeout_ns, 2 * patience_ns);
    self.check = [&]() -> Status {
      WHORL_TRY(check_remaining(parent, remaining));
      return sys().now_ns() < give_up_ns ? Status() : first;
    };
    sys().sleep_ns(kPauseNs);
  }
}

} // namespace whorl
