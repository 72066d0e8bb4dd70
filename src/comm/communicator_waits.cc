// The part of Communicator that acts in long waits: looks for failures, tells the others in what
// this rank is stuck, and names the rank that all wait for.
#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"
#include "base/system.h"
#include "comm/communicator.h"
#include "comm/interrupt.h"
#include "monitor/obstacle.h"

namespace whorl {
namespace {

std::string seconds(std::uint64_t ns) {
  return fmt::format("{:.1f} s", static_cast<double>(ns) * 1e-9);
}

} // namespace

void Communicator::PeerWaiter::block(std::uint64_t max_ns) noexcept { comm_.setup_.block(max_ns); }

/// Ends the communicator if the check of whorlSetInterruptCheck() says so to this thread.
void Communicator::end_if_interrupted() noexcept {
  const auto interrupted = interrupt_check.load(std::memory_order_relaxed);
  if (interrupted == nullptr || interrupted() == 0) return;
  abort(Status::error(Code::kInvalidUsage,
                      fmt::format("{}: the program was interrupted while it waited",
                                  membership().describe(rank()))));
}

void Communicator::PeerWaiter::poll_failures(std::uint64_t waited_ns) noexcept {
  constexpr std::uint64_t kStuckNs = 30'000'000, kCompareNs = 10'000'000;
  constexpr std::uint64_t kCompareOneNs = 200'000;
  // A rank may be late in each step of a program, so warnings are rare.
  constexpr std::uint64_t kWarnNs = 1'000'000'000, kQuietNs = 60'000'000'000;
  comm_.look_at_peers(waited_ns);
  for (const auto& transport : comm_.setup_.transports) transport->serve_idle_endpoints();
  comm_.end_if_interrupted();
  if (!comm_.engine_->active()) return;
  const std::uint64_t now = sys().now_ns();
  comm_.record_wait(now - std::min(now, waited_ns), now);
  if (waited_ns < kStuckNs) return;
  comm_.give_up_if_destroyed(waited_ns, now);
  // Each rank reads what all others have told.
  const auto ranks = static_cast<std::uint64_t>(comm_.membership().nranks);
  if (now - compared_ns_ >= std::max(kCompareNs, ranks * kCompareOneNs)) {
    compared_ns_ = now;
    Status status = without_exceptions([this] { return comm_.compare_with_peers(); });
    if (!status.ok()) comm_.abort(std::move(status));
  }
  if (waited_ns < kWarnNs || (warned_ns_ != 0 && now - warned_ns_ < kQuietNs)) return;
  warned_ns_ = now;
  static_cast<void>(without_exceptions([&]() -> Status {
    const std::string why = comm_.obstacle_of(comm_.rank_that_all_wait_for());
    log(LogLevel::kWarn, fmt::format("no progress for {}: {}{}{}", seconds(waited_ns),
                                     comm_.engine_->waiting(), why.empty() ? "" : ". ", why));
    return {};
  }));
}

/// Shows a wait of more than a millisecond to those who look from outside.
void Communicator::record_wait(std::uint64_t since_ns, std::uint64_t now_ns) noexcept {
  static_cast<void>(without_exceptions([&]() -> Status {
    const Execution::Waiting wait = engine_->waits_for();
    const bool shown = wait.peer == shown_wait_.peer && wait.phase == shown_wait_.phase;
    setup_.recorder->waiting(since_ns, now_ns, wait.peer,
                             shown ? std::string() : engine_->describe_wait());
    shown_wait_ = wait;
    return {};
  }));
}

/// Returns what a peer has told last, of any kind.
std::optional<StuckOperation> Communicator::find_told(int peer) const {
  const int index = setup_.transport_of[static_cast<std::size_t>(peer)];
  if (index < 0) return std::nullopt;
  return setup_.transports[static_cast<std::size_t>(index)]->find_stuck(peer);
}

void Communicator::tell_failed_split() noexcept {
  told_stuck_ = StuckOperation{.fingerprint = Fingerprint{.sequence = splits_},
                               .waits_for = StuckOperation::kFailedSplit};
  for (const auto& transport : setup_.transports) transport->tell_stuck(*told_stuck_, {});
}

bool Communicator::has_failed_split(int peer) const {
  const auto told = find_told(peer);
  return told && told->waits_for == StuckOperation::kFailedSplit &&
         told->fingerprint.sequence == splits_;
}

/// Returns what a peer has told of the operation in which it is stuck, if it has told anything.
std::optional<StuckOperation> Communicator::find_stuck(int peer) const {
  auto stuck = find_told(peer);
  if (stuck == StuckOperation{}) return std::nullopt; // withdrawn
  if (stuck && stuck->waits_for == StuckOperation::kFailedSplit) return std::nullopt;
  if (stuck && stuck->waits_for >= membership().nranks) stuck->waits_for = -1; // another's words
  return stuck;
}

/// Returns what this rank is stuck in. A wait for any rank is one for the only rank that has told
/// of no wait of its own, if all others have, or have left.
std::optional<StuckOperation> Communicator::own_wait() const {
  auto own = engine_->stuck();
  if (!own || own->waits_for >= 0 || own->fingerprint.kind() != Collective::kSend) return own;
  int silent = -1;
  for (int peer = 0; peer < nranks(); ++peer) {
    if (peer == rank() || engine_->has_left(peer)) continue;
    if (const auto theirs = find_stuck(peer); theirs && theirs->waits_for >= 0) continue;
    if (silent >= 0) return own;
    silent = peer;
  }
  own->waits_for = silent;
  return own;
}

/// Returns whether a peer that is stuck waits in the end for this rank, and no message of the peer
/// is under way to here. Between hosts only the peer's own wait counts, since messages of the ranks
/// between may be under way.
bool Communicator::needs_this_rank(int peer, const StuckOperation& theirs) const {
  const auto shares_memory = [this](int other) {
    const int index = setup_.transport_of[static_cast<std::size_t>(other)];
    return setup_.transports[static_cast<std::size_t>(index)]->traits().shares_memory;
  };
  if (!shares_memory(peer)) {
    return theirs.waits_for == rank() && engine_->has_all_messages(peer, theirs);
  }
  int at = theirs.waits_for;
  for (int steps = 0; at >= 0 && at != rank() && steps < nranks(); ++steps) {
    const auto next = find_stuck(at);
    if (!next || !(next->fingerprint == theirs.fingerprint) || !shares_memory(at)) return false;
    at = next->waits_for;
  }
  return at == rank();
}

/// Tells the peers what this rank is stuck in, and looks whether they are stuck in something else.
Status Communicator::compare_with_peers() {
  if (setup_.comm_error->is_set()) return {};
  const auto stuck = own_wait();
  // Others may not have read yet that this rank has failed in a split.
  const bool keeps = told_stuck_ && told_stuck_->waits_for == StuckOperation::kFailedSplit;
  if (stuck && stuck != told_stuck_ && !keeps) {
    told_stuck_ = stuck;
    const std::vector<std::uint32_t> sent = engine_->sent_messages();
    for (const auto& transport : setup_.transports) transport->tell_stuck(*stuck, sent);
  }
  for (int peer = 0; peer < membership().nranks; ++peer) {
    const auto theirs = find_stuck(peer);
    if (!theirs) continue;
    const bool for_each_other = theirs->waits_for == rank() && engine_->waits_for().peer == peer;
    if (for_each_other) WHORL_TRY(engine_->compare_left_over(peer));
    Status status = engine_->compare(peer, *theirs);
    if (engine_->waits_before(peer, *theirs) && needs_this_rank(peer, *theirs)) {
      status = engine_->never_meet(peer, *theirs);
    }
    if (status.ok()) continue;
    // This rank may have looked for messages of the peer before the peer was stuck.
    if (suspect_ == *theirs) return status;
    suspect_ = *theirs;
    return {};
  }
  return {};
}

/// Tells the peers that this rank is not stuck any more in what it has told them.
void Communicator::withdraw_stuck() noexcept {
  told_stuck_.reset();
  for (const auto& transport : setup_.transports) transport->tell_stuck({}, {});
}

/// Returns the rank at the end of the chain of ranks that wait for one another in this operation,
/// or in others that keep them from this one; that rank has not come. Where there is no such end,
/// as while several operations of a group are under way, or where the chain is a circle, the rank
/// that this one waits for. −1: none.
int Communicator::rank_that_all_wait_for() const {
  const int awaited = engine_->waits_for().peer;
  const auto own = own_wait();
  if (!own) return awaited;
  int rank = own->waits_for;
  for (int steps = 0; rank >= 0 && rank != this->rank() && steps < membership().nranks; ++steps) {
    const auto next = find_stuck(rank);
    if (!next || next->waits_for < 0) return rank;
    // A rank in a later collective has been here. Transfers are numbered by themselves.
    const Fingerprint& here = own->fingerprint;
    const Fingerprint& there = next->fingerprint;
    const bool numbered = here.kind() != Collective::kSend && there.kind() != Collective::kSend;
    const bool later = static_cast<std::int32_t>(there.sequence - here.sequence) > 0;
    if (numbered && (later || (there.sequence == here.sequence && !(there == here)))) return rank;
    rank = next->waits_for;
  }
  return awaited;
}

/// Describes what the other ranks have told of the waits in which they are stuck, as a sentence.
std::string Communicator::states_of_others() const {
  constexpr int kShown = 8;
  const auto own = engine_->stuck();
  std::string told;
  int shown = 0;
  for (int peer = 0; peer < nranks() && shown < kShown; ++peer) {
    const auto theirs = find_stuck(peer);
    if (peer == rank() || !theirs || theirs->waits_for < 0) continue;
    const bool same = own && own->fingerprint == theirs->fingerprint;
    told += fmt::format("{}rank {} waits for rank {} in {}", shown++ == 0 ? "" : ", ", peer,
                        theirs->waits_for,
                        same ? "the same operation" : whorl::describe(theirs->fingerprint));
  }
  return shown == 0 ? told : fmt::format(". What other ranks have told: {}", told);
}

/// Describes that a rank of another host has come to the collective of this one, and waits there
/// itself, as it has told over the connection for such words; empty if it has told nothing of that
/// kind. No schedule lets ranks wait for each other; sends and receives of a program may.
std::string Communicator::obstacle_of_network(int culprit) const {
  const auto own = engine_->stuck();
  const auto theirs = find_stuck(culprit);
  if (!own || !theirs || theirs->waits_for < 0 || own->fingerprint != theirs->fingerprint ||
      own->fingerprint.kind() == Collective::kSend) {
    return {};
  }
  return fmt::format(
      "{} has come to this operation, and told that it waits for rank {} there: unless it was "
      "stopped since, messages are lost or late on the way, although small packets arrive. Look "
      "for a link that does not carry packets as large as the network interfaces make them (MTU), "
      "a firewall that has forgotten the connection, and a slow link",
      membership().describe(culprit), theirs->waits_for);
}

/// Returns why a rank does not come, in words, as far as its process shows it to this one; empty
/// if nothing is seen, as mostly of a rank of another host or of this process. −1: no rank.
std::string Communicator::obstacle_of(int culprit) const {
  if (culprit < 0 || culprit == rank()) return {};
  const auto& peers = membership().peers;
  const PeerInfo& info = peers[static_cast<std::size_t>(culprit)];
  const PeerInfo& self = peers[static_cast<std::size_t>(rank())];
  if (info.host_key != self.host_key) return obstacle_of_network(culprit);
  // Ranks of one process are its threads: each would read the pages of all others.
  if (info.process_key == self.process_key) return {};
  std::vector<monitor::ObservedRank> seen;
  if (monitor::observe_process(static_cast<int>(info.process_id), seen) != 0) return {};
  // The number may mean another process to this one, but only a member has such a page.
  const auto found = std::find_if(seen.begin(), seen.end(), [&](const auto& one) {
    return one.page.job == membership().identity.job && one.page.rank == culprit;
  });
  auto own = monitor::read_page(setup_.recorder->page());
  if (found == seen.end() || !own.ok()) return {};
  return monitor::obstacle(*found, {.page = *std::move(own)}, seen);
}

Status Communicator::time_out_error() const {
  const int culprit = rank_that_all_wait_for();
  const int index = culprit < 0 ? -1 : setup_.transport_of[static_cast<std::size_t>(culprit)];
  const bool is_alive =
      index >= 0 && setup_.transports[static_cast<std::size_t>(index)]->traits().shares_memory;
  std::string why = obstacle_of(culprit);
  if (why.empty()) {
    why = fmt::format("{} {}stopped, busy elsewhere or may not have made this call",
                      culprit < 0 ? "Another rank" : membership().describe(culprit),
                      is_alive ? "may be " : "may be dead, ");
  }
  return Status::error(
      Code::kRemoteError,
      fmt::format("no progress within the timeout of {}. {}. {}; if it needs longer, raise the "
                  "timeout (timeout= of the packages for Python and PyTorch, otherwise "
                  "WHORL_TIMEOUT_MS, timeoutMs or whorlCommSetTimeout()){}",
                  seconds(timeout_ns_), engine_->waiting(), why, states_of_others()));
}

/// Gives up the operation that has waited so long, and all behind it, if the communicator is being
/// destroyed.
void Communicator::give_up_if_destroyed(std::uint64_t waited_ns, std::uint64_t now_ns) noexcept {
  const std::uint64_t since = destroyed_ns_.load(std::memory_order_relaxed);
  if (since == 0 || std::min(waited_ns, now_ns - std::min(now_ns, since)) < kDestroyPatienceNs) {
    return;
  }
  if (setup_.comm_error->is_set() || engine_->waits_for().for_device) return;
  const Status why = without_exceptions([this] { return destroyed_error(); });
  if (setup_.comm_error->set(why)) gave_up_.store(true, std::memory_order_release);
  notify_peers();
}

/// Describes what the destruction of the communicator gives up, for this rank and for the others.
Status Communicator::destroyed_error() const {
  const int culprit = rank_that_all_wait_for();
  const bool queued = task_operations_ > 0; // or a call of another thread
  const std::size_t count =
      std::max<std::size_t>(task_operations_, 1) + tasks_->queued_operations();
  return Status::error(
      Code::kRemoteError,
      fmt::format("{} destroyed its communicator while {} {} {}, which had not come for {} ms; {} "
                  "{} given up. To wait for that rank, call whorlCommFinalize() before "
                  "whorlCommDestroy()",
                  membership().describe(rank()), engine_->operation(),
                  queued ? "was queued and waited for" : "waited for",
                  culprit < 0 ? "another rank" : membership().describe(culprit),
                  kDestroyPatienceNs / 1'000'000, count,
                  count == 1 ? "operation was" : "operations were"));
}

} // namespace whorl
