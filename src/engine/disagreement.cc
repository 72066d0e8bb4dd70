// The part of Engine that describes how a message of another rank disagrees with this rank's call.
#include <fmt/core.h>

#include <algorithm>

#include "engine/engine.h"

namespace whorl {

/// Returns the error of the execution or exchange that has failed; kOk if an endpoint failed,
/// because then the CommError has the error.
Status Engine::failure_of_collective() const {
  if (!exchanging_) {
    const Execution::Mismatch& mismatch = execution().mismatch();
    Status failure = fail_on(mismatch, mismatch.peer, fingerprint_);
    return failure.ok() ? execution().pipeline_error() : failure;
  }
  if (const VExchange::Mismatch& block = exchange_->mismatch(); block.peer >= 0) {
    return fail_on_block({.peer = block.peer, .theirs = block.theirs}, block.peer, block.ours);
  }
  if (!exchange_->error().ok()) return exchange_->error();
  return exchange_->current() == nullptr ? Status() : fail_on(*exchange_->current());
}

Status Engine::fail_on(const Execution::Mismatch& mismatch, int peer,
                       const Fingerprint& ours) const {
  if (mismatch.peer < 0) return {};
  const Membership& members = *config_.membership;
  if (mismatch.theirs == ours) {
    return Status::error(
        Code::kInternalError,
        fmt::format("{} got {} bytes from {} in {}, where a message has {}: the transport has lost "
                    "data",
                    members.describe(members.rank), mismatch.bytes, members.describe(peer),
                    describe(ours), mismatch.expected_bytes));
  }
  const auto disagreement_with = [&](const Fingerprint& call) {
    return describe_disagreement(
        {members.describe(members.rank), describe(call), call},
        {members.describe(peer), describe(mismatch.theirs), mismatch.theirs});
  };
  if (const auto earlier = earlier_call(mismatch.theirs, ours)) {
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("{} (found in {})", disagreement_with(*earlier), describe(ours)));
  }
  const std::string counts = ours == fingerprint_ ? own_counts() : std::string();
  return Status::error(Code::kInvalidUsage, disagreement_with(ours) + counts);
}

/// Returns whether a message is one of a collective whose messages all have the same fingerprint.
bool Engine::is_alike(const Fingerprint& fingerprint) noexcept {
  return known(fingerprint) && fingerprint.kind() != Collective::kSend && !fingerprint.uneven();
}

/// Returns this rank's call for which a message of an earlier collective was meant, if that call
/// differed. This rank then needed no message of the sender in that call, and found the message
/// in its next one. Calls with blocks of different sizes are not told apart.
std::optional<Fingerprint> Engine::earlier_call(const Fingerprint& theirs,
                                                const Fingerprint& ours) const {
  if (!is_alike(theirs) || !is_alike(ours)) return std::nullopt;
  if (static_cast<std::int32_t>(theirs.sequence - ours.sequence) >= 0) return std::nullopt;
  const auto call = config_.recorder->find_collective(theirs.sequence);
  return call && *call != theirs ? call : std::nullopt;
}

/// Describes the sizes of blocks in this rank's call, as the end of a sentence. A message has only
/// a hash of the sizes, so each rank can describe only its own.
std::string Engine::own_counts() const {
  if (!collective_active_ || exchanging_ || current_->request.table == nullptr) return {};
  constexpr std::size_t kShown = 16;
  std::string text;
  const auto& blocks = current_->request.table->blocks;
  for (std::size_t i = 0; i < std::min(blocks.size(), kShown); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", blocks[i].count);
  }
  return fmt::format("; recvcounts, which all ranks must give alike, are {}{} here", text,
                     blocks.size() > kShown ? " …" : "");
}

} // namespace whorl
