#include <fmt/core.h>

#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "base/event.h"
#include "bootstrap/gathering.h"

namespace whorl {
namespace {

/// Makes an identity of random bytes.
Result<Identity> make_identity() {
  Identity identity;
  for (const std::span<std::byte> part :
       {std::span<std::byte>(identity.job), std::span<std::byte>(identity.secret)}) {
    if (const int error = sys().random_bytes(part); error != 0) {
      return Status::error(Code::kSystemError, fmt::format("no random bytes from the system: {}",
                                                           std::strerror(-error)));
    }
  }
  return identity;
}

/// Where the threads of one process meet: a table of contributions for each round.
class Room {
 public:
  Room(int nranks, std::uint64_t timeout_ns)
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
    const Verdict nobody;
    // A wake-up is never lost, so naps need not be short.
    constexpr std::uint64_t kNapNs = 100'000'000;
    const WaitPolicy policy{.timeout_ns = timeout_ns_,
                            .spins = 0,
                            .yield_ns = 0,
                            .nap_ns = kNapNs,
                            .first_nap_ns = kNapNs};
    const WaitResult result = wait_until(
        [&] {
          const std::lock_guard lock(mutex_);
          return table->arrived == nranks_ ? Progress::kDone : Progress::kIdle;
        },
        policy, nobody, waiter);
    if (result == WaitResult::kReady) { // from here on nobody writes to the table
      std::memcpy(all.data(), table->bytes.data(), all.size());
      return {};
    }
    return Status::error(Code::kInternalError,
                         fmt::format("rank {}: the ranks of this process did not meet", rank));
  }

 private:
  struct Round {
    std::vector<std::byte> bytes;
    std::size_t arrived = 0;
  };
  std::size_t nranks_;
  std::uint64_t timeout_ns_;
  std::mutex mutex_;
  Event arrival_;
  std::deque<Round> rounds_; ///< stay where they are while more are added
};

class RoomOob final : public Oob {
 public:
  RoomOob(std::shared_ptr<Room> room, int rank)
      : room_(std::move(room)), rank_(static_cast<std::size_t>(rank)) {}
  Status allgather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    return room_->allgather(rank_, round_++, mine, all);
  }

 private:
  std::shared_ptr<Room> room_;
  std::size_t rank_;
  std::size_t round_ = 0;
};

} // namespace

Result<std::vector<Gathering>> meet_in_process(int nranks, std::uint64_t timeout_ns) {
  const auto identity = make_identity();
  if (!identity.ok()) return identity.status();
  const auto room = std::make_shared<Room>(nranks, 2 * timeout_ns);
  std::vector<Gathering> meetings;
  for (int rank = 0; rank < nranks; ++rank) {
    meetings.push_back({.oob = std::make_unique<RoomOob>(room, rank),
                        .identity = *identity,
                        .rank = rank,
                        .nranks = nranks});
  }
  return meetings;
}

} // namespace whorl
