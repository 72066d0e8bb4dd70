#include <fmt/core.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "base/event.h"
#include "bootstrap/gathering.h"
#include "bootstrap/identity.h"

namespace whorl {
namespace {

/// Meeting of the threads of one process: a table of contributions for each round. A rank that
/// leaves before the last round ends the waits of the others.
class InProcessRendezvous {
 public:
  InProcessRendezvous(int nranks, std::uint64_t timeout_ns)
      : nranks_(static_cast<std::size_t>(nranks)), timeout_ns_(timeout_ns) {}

  Status allgather(std::size_t rank, std::size_t round, std::span<const std::byte> mine,
                   std::span<std::byte> all) {
    Round* table = nullptr;
    bool complete = false;
    {
      const std::lock_guard lock(mutex_);
      if (rounds_.size() <= round) rounds_.resize(round + 1);
      table = &rounds_[round];
      if (table->bytes.empty()) table->bytes.resize(mine.size() * nranks_);
      std::memcpy(table->bytes.data() + rank * mine.size(), mine.data(), mine.size());
      complete = ++table->arrived == nranks_;
    }
    Event::Waiter waiter(arrival_);
    if (complete) arrival_.notify();
    const CommError never_set;
    // A wake-up is never lost, so sleeps need not be short.
    constexpr std::uint64_t kBlockNs = 100'000'000;
    const WaitPolicy policy{.timeout_ns = timeout_ns_,
                            .spins = 0,
                            .yield_ns = 0,
                            .block_ns = kBlockNs,
                            .first_block_ns = kBlockNs};
    const WaitResult result = wait_until(
        [&] {
          const std::lock_guard lock(mutex_);
          return table->arrived == nranks_ || round >= last_round_ ? Progress::kDone
                                                                   : Progress::kIdle;
        },
        policy, never_set, waiter);
    const std::lock_guard lock(mutex_);
    if (table->arrived == nranks_) { // no thread writes to the table any more
      std::memcpy(all.data(), table->bytes.data(), all.size());
      return {};
    }
    if (result == WaitResult::kReady) {
      return left(rank);
    }
    return Status::error(Code::kInternalError,
                         fmt::format("rank {}: the ranks of this process did not meet", rank));
  }

  /// Returns an error if another rank takes no part in round number `round`.
  Status check(std::size_t rank, std::size_t round) {
    const std::lock_guard lock(mutex_);
    return round >= last_round_ ? left(rank) : Status();
  }

  /// Notes that a rank takes part in no more than `rounds` rounds.
  void leave(std::size_t rank, std::size_t rounds) noexcept {
    {
      const std::lock_guard lock(mutex_);
      if (rounds >= last_round_) return;
      last_round_ = rounds;
      leaver_ = rank;
    }
    arrival_.notify();
  }

 private:
  Status left(std::size_t rank) const {
    return Status::error(Code::kRemoteError,
                         fmt::format("rank {}: rank {} has given up its creation", rank, leaver_));
  }

  struct Round {
    std::vector<std::byte> bytes;
    std::size_t arrived = 0;
  };
  std::size_t nranks_;
  std::uint64_t timeout_ns_;
  std::mutex mutex_;
  Event arrival_;
  std::deque<Round> rounds_;          ///< stay where they are while more are added
  std::size_t last_round_ = SIZE_MAX; ///< first round that some rank takes no part in
  std::size_t leaver_ = 0;            ///< rank that takes no part in it
};

class InProcessOob final : public Oob {
 public:
  InProcessOob(std::shared_ptr<InProcessRendezvous> rendezvous, int rank)
      : rendezvous_(std::move(rendezvous)), rank_(static_cast<std::size_t>(rank)) {}
  ~InProcessOob() override { rendezvous_->leave(rank_, round_); }
  Status allgather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    return rendezvous_->allgather(rank_, round_++, mine, all);
  }
  Status give_up(const Status& why) override {
    rendezvous_->leave(rank_, round_);
    return why;
  }
  Status check() override { return rendezvous_->check(rank_, round_); }

 private:
  std::shared_ptr<InProcessRendezvous> rendezvous_;
  std::size_t rank_;
  std::size_t round_ = 0;
};

} // namespace

Result<std::vector<Gathering>> meet_in_process(int nranks, std::uint64_t timeout_ns) {
  const auto identity = make_identity();
  if (!identity.ok()) return identity.status();
  const auto rendezvous = std::make_shared<InProcessRendezvous>(nranks, 2 * timeout_ns);
  std::vector<Gathering> meetings;
  for (int rank = 0; rank < nranks; ++rank) {
    meetings.push_back({.oob = std::make_unique<InProcessOob>(rendezvous, rank),
                        .identity = *identity,
                        .rank = rank,
                        .nranks = nranks});
  }
  return meetings;
}

} // namespace whorl
