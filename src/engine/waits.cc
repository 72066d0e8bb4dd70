// The part of Engine that says in what this rank is stuck, and compares that with what its peers
// are stuck in.
#include <fmt/core.h>

#include <algorithm>

#include "engine/engine.h"

namespace whorl {

std::optional<StuckOperation> Engine::stuck() const {
  if (!collective_active_) {
    if (active_transfers_.empty() && next_any_ < any_.size()) {
      return StuckOperation{.fingerprint = any_[next_any_].fingerprint};
    }
    if (active_transfers_.empty()) return std::nullopt;
    const Transfer& first = *active_transfers_.all().front();
    return StuckOperation{.fingerprint = first.fingerprint(), .waits_for = first.peer()};
  }
  // With transfers of the same batch under way the peer may get what it waits for.
  const bool alone = active_transfers_.empty() && next_any_ == any_.size();
  return StuckOperation{.fingerprint = fingerprint_, .waits_for = alone ? waits_for().peer : -1};
}

Status Engine::compare(int peer, const StuckOperation& theirs) const {
  const Fingerprint& other = theirs.fingerprint;
  if (other.kind() == Collective::kSend) return {}; // the number of a transfer is of another count
  const auto ours = call_number(other.sequence);
  if (!ours || *ours == other) return {};
  return fail_on({.peer = peer, .theirs = other}, peer, *ours);
}

/// Returns the fingerprint of this rank's collective with a number: of the one under way, or of one
/// that is complete, as long as that is among the last operations.
std::optional<Fingerprint> Engine::call_number(std::uint32_t sequence) const {
  if (collective_active_ && sequence == fingerprint_.sequence) return fingerprint_;
  if (static_cast<std::int32_t>(sequence - sequence_) > 0) return std::nullopt;
  return config_.recorder->find_collective(sequence);
}

bool Engine::waits_before(int peer, const StuckOperation& theirs) const noexcept {
  const Fingerprint& other = theirs.fingerprint;
  if (collective_active_ || other.kind() == Collective::kSend ||
      static_cast<std::int32_t>(other.sequence - sequence_) <= 0) {
    return false;
  }
  const auto active = active_transfers_.all();
  return std::any_of(active.begin(), active.end(),
                     [peer](const Transfer* transfer) { return transfer->peer() == peer; });
}

Status Engine::never_meet(int peer, const StuckOperation& theirs) const {
  const Membership& members = *config_.membership;
  return Status::error(
      Code::kInvalidUsage,
      fmt::format("ranks wait for each other in different operations: {} in {}, {} in {}. All "
                  "ranks must make the same calls in the same order",
                  members.describe(members.rank), operation(), members.describe(peer),
                  describe(theirs.fingerprint)));
}

Status Engine::compare_left_over(int peer) const {
  const std::uint32_t completed = collective_active_ ? sequence_ - 1 : sequence_;
  for (std::size_t channel = 0; channel + 1 < config_.endpoints.size(); ++channel) {
    const Message message = config_.endpoints[channel][static_cast<std::size_t>(peer)]->try_peek();
    if (!message) continue;
    const Fingerprint& theirs = message.fingerprint;
    if (!is_alike(theirs) || static_cast<std::int32_t>(theirs.sequence - completed) > 0) continue;
    const auto ours = call_number(theirs.sequence);
    if (ours && *ours != theirs) {
      return fail_on({.peer = peer, .theirs = theirs}, peer, *ours);
    }
  }
  return {};
}

std::vector<std::uint32_t> Engine::sent_messages() const {
  std::vector<std::uint32_t> counts;
  for (const Endpoint* const endpoint : config_.endpoints.back()) {
    counts.push_back(endpoint == nullptr ? 0 : static_cast<std::uint32_t>(endpoint->sent()));
  }
  return counts;
}

bool Engine::has_all_messages(int peer, const StuckOperation& theirs) const {
  const Endpoint* const endpoint = config_.endpoints.back()[static_cast<std::size_t>(peer)];
  return endpoint != nullptr && static_cast<std::uint32_t>(endpoint->received()) == theirs.sent;
}

} // namespace whorl
