// The rendezvous of a root: which ranks are members, when a round is complete and what ends it.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/printable.h"
#include "bootstrap/root_connections.h"

namespace whorl::bootstrap {

bool Root::finished() const {
  if (failed_ && sys().now_ns() >= ends_ns_) return true;
  return complete() && std::none_of(connections_.begin(), connections_.end(),
                                    [](const auto& c) { return c->member; });
}

bool Root::connected() const {
  return std::any_of(connections_.begin(), connections_.end(),
                     [](const auto& c) { return c->socket.valid(); });
}

bool Root::begin(Connection& c) {
  const Contribution& h = c.header;
  bool good = h.sane() && h.rank == c.rank;
  if (h.kind != ContributionKind::kFailed) good = good && !c.contributed;
  if (h.kind == ContributionKind::kLeaving) good = good && c.member;
  if (!good) {
    const bool was_member = c.member;
    const std::string who = c.who;
    drop(c);
    if (was_member) {
      fail(Code::kInternalError,
           fmt::format("rank {} ({}) sent a malformed message to the rendezvous", c.rank, who));
    }
    return false;
  }
  c.who = printable({h.who.data(), ::strnlen(h.who.data(), h.who.size())});
  if (!c.member && complete() && !failed_) {
    refuse(c);
    return false;
  }
  if (h.kind == ContributionKind::kFailed) c.reason.resize(h.bytes);
  return h.kind != ContributionKind::kData || join(c);
}

/// Tells a peer, and nobody else, that all ranks are there: the words of the peer may be late ones
/// of a rank that has tried again since, with other ranks.
void Root::refuse(Connection& c) {
  const std::string text = fmt::format(
      "rank {} ({}) comes after all {} ranks have met; does it belong to another job "
      "that uses the same address or unique id?",
      c.rank, c.who, nranks_);
  c.closing = true; // so only the end of the connection matters
  c.answer = error_answer(Code::kInvalidUsage, text);
  send_answer(c);
}

void Root::note_joining(std::uint32_t rank) {
  came_.insert(rank);
  joined_rank0_ = joined_rank0_ || rank == 0;
}

void Root::refuse_setting(std::uint32_t rank, const Status& why) {
  note_joining(rank);
  fail(why.code(), fmt::format("the root of the rendezvous does not let rank {} join: {}", rank,
                               why.message()));
}

void Root::give_up(Connection& c) {
  came_.insert(c.rank);
  // The end of this connection tells the rank that there is no other reason, and comes last: this
  // thread may live in the process of that rank, which may end then.
  const StreamSocket until_all_are_told = std::move(c.socket);
  drop(c);
  fail(static_cast<Code>(c.header.code),
       fmt::format("rank {} ({}) could not join: {}", static_cast<std::int32_t>(c.rank), c.who,
                   printable({reinterpret_cast<const char*>(c.reason.data()), c.reason.size()})));
}

bool Root::join(Connection& c) {
  const Contribution& h = c.header;
  c.timeout_ms = h.timeout_ms;
  c.deadline_ns = sys().now_ns() + std::uint64_t{h.timeout_ms} * 1'000'000;
  const bool first_time = !c.member;
  c.member = true;
  note_joining(c.rank);
  if (nranks_ == 0) {
    nranks_ = h.nranks;
    first_ = fmt::format("rank {} ({})", c.rank, c.who);
    members_.assign(nranks_, nullptr);
  }
  if (failed_) {
    c.deadline_ns = UINT64_MAX;
    start_answer(c, failure_);
    return false;
  }
  if (h.nranks != nranks_) {
    fail(Code::kInvalidUsage,
         fmt::format("the ranks disagree about their number: {} says {}, rank {} ({}) says {}",
                     first_, nranks_, c.rank, c.who, h.nranks));
    return false;
  }
  if (c.rank >= nranks_) {
    fail(Code::kInvalidArgument,
         fmt::format("rank {} ({}) does not exist among {} ranks", c.rank, c.who, nranks_));
    return false;
  }
  if (first_time) {
    if (members_[c.rank] != nullptr || left_.contains(c.rank)) {
      const std::string other =
          members_[c.rank] != nullptr ? members_[c.rank]->who : left_.at(c.rank);
      fail(Code::kInvalidUsage,
           fmt::format("two processes say that they are rank {}: one is at {}, the other at {}",
                       c.rank, other, c.who));
      return false;
    }
    members_[c.rank] = &c;
    ++joined_;
  }
  if (!left_.empty()) {
    fail(Code::kRemoteError,
         fmt::format("rank {} ({}) of {} left the rendezvous or died in the middle of it",
                     left_.begin()->first, left_.begin()->second, nranks_));
    return false;
  }
  if (contributions_ == 0 && !sized_) {
    contribution_bytes_ = h.bytes;
    sized_ = true;
    all_.assign(std::size_t{nranks_} * h.bytes, std::byte{0});
  }
  if (h.bytes != contribution_bytes_ || h.round != round_) {
    fail(Code::kInvalidUsage,
         fmt::format("rank {} ({}) gives {} bytes in round {} of the rendezvous, others give {} "
                     "in round {}: all ranks must use the same release and make the same calls",
                     c.rank, c.who, h.bytes, h.round, contribution_bytes_, round_));
    return false;
  }
  return true;
}

void Root::answer_all() {
  Answer header;
  header.round = round_++;
  header.bytes = all_.size();
  header.salt = salt_;
  ByteWriter out;
  out.put(header);
  out.put_bytes(all_);
  const auto answer = std::make_shared<const std::vector<std::byte>>(out.bytes());
  contributions_ = 0;
  sized_ = false;
  for (Connection* member : members_) {
    member->contributed = false;
    member->deadline_ns = UINT64_MAX;
  }
  // Rank 0 last: this thread may live in its process, and ends with it. A rank that has died
  // meanwhile ends the rendezvous: then fail() has answered all.
  for (std::size_t rank = nranks_; rank-- > 0 && !failed_;) {
    if (members_[rank] != nullptr) start_answer(*members_[rank], answer);
  }
}

std::shared_ptr<const std::vector<std::byte>> Root::error_answer(Code code,
                                                                 const std::string& text) const {
  Answer header;
  header.code = static_cast<std::uint32_t>(code);
  header.round = round_;
  header.bytes = std::min<std::size_t>(text.size(), kMaxTextBytes);
  header.salt = salt_;
  ByteWriter out;
  out.put(header);
  out.put_bytes(std::as_bytes(std::span(text)).first(header.bytes));
  return std::make_shared<const std::vector<std::byte>>(out.bytes());
}

void Root::fail(Code code, const std::string& text) {
  if (failed_) return;
  failed_ = true;
  ends_ns_ = sys().now_ns() + afterlife_ns_;
  failure_ = error_answer(code, text);
  for (const bool rank0 : {false, true}) { // rank 0 last, as in answer_all()
    for (const auto& connection : connections_) {
      if (!connection->member || (connection->rank == 0) != rank0) continue;
      connection->deadline_ns = UINT64_MAX;
      if (connection->answer != nullptr &&
          (connection->answered > 0 || connection->socket.sending())) {
        continue; // the failure follows the answer under way, see send_answer()
      }
      if (connection->socket.valid()) start_answer(*connection, failure_);
    }
  }
}

void Root::hung_up(Connection& c) {
  const bool was_member = c.member && c.rank < members_.size() && members_[c.rank] == &c;
  const std::string who = c.who;
  const bool in_round = c.contributed || c.header_bytes > 0 || contributions_ > 0 || sized_ ||
                        joined_ < nranks_ || c.answer != nullptr;
  const bool leaving = c.leaving;
  drop(c);
  if (!was_member || failed_) return;
  left_.emplace(c.rank, who);
  if (in_round || !leaving) {
    fail(Code::kRemoteError, fmt::format("rank {} ({}) of {} died in the middle of the rendezvous",
                                         c.rank, who, nranks_));
  }
}

void Root::fail_as_changed(Connection& c) {
  note_joining(c.rank);
  const Status changed =
      changed_on_the_way(fmt::format("rank {}", c.rank), "the root of the rendezvous");
  fail(changed.code(), changed.message());
  if (c.member) return;
  c.member = true; // only members are told of a failure
  start_answer(c, failure_);
}

void Root::check_deadlines() {
  if (failed_) return;
  const std::uint64_t now = sys().now_ns();
  for (const auto& c : connections_) {
    if (c->deadline_ns > now) continue;
    fail(Code::kRemoteError, describe_missing(c->timeout_ms));
    return;
  }
}

std::string Root::describe_missing(std::uint32_t timeout_ms) const {
  constexpr std::size_t kMaxNamed = 16;
  std::vector<std::string> missing;
  std::size_t waiting = 0;
  bool absent = false;
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    const Connection* const member = members_[rank];
    if (member != nullptr && member->contributed) {
      ++waiting;
    } else {
      absent = absent || member == nullptr;
      missing.push_back(member == nullptr ? std::to_string(rank)
                                          : fmt::format("{} ({})", rank, member->who));
    }
  }
  const std::size_t count = missing.size();
  std::string names = missing.empty() ? "" : missing[0];
  for (std::size_t i = 1; i < std::min(count, kMaxNamed); ++i) {
    names += (i + 1 == count ? " and " : ", ") + missing[i];
  }
  if (count > kMaxNamed) names += fmt::format(" and {} more", count - kMaxNamed);
  const std::string missed = fmt::format(
      "rank{} {} of {} did not {} within the timeout of {} s; {} rank{} waiting.",
      count == 1 ? "" : "s", names, nranks_, absent ? "arrive" : "contribute to the rendezvous",
      timeout_ms / 1000.0, waiting, waiting == 1 ? " is" : "s are");
  const char* const they = count == 1 ? "it" : "they";
  if (absent) {
    return fmt::format(
        "{} Check that {} {} started, with the same unique id or address and the right rank, and "
        "can reach the root of the rendezvous",
        missed, they, count == 1 ? "has" : "have");
  }
  return fmt::format(
      "{} Check that {} {} not stopped and that the network between carries large packets (MTU)",
      missed, they, count == 1 ? "is" : "are");
}

} // namespace whorl::bootstrap
