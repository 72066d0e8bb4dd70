#include "comm/meeting.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>

#include "base/event.h"
#include "comm/bootstrap_root.h"
#include "comm/launcher.h"

namespace whorl {
namespace {

/// Fresh and random.
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

/// All-gather of a subset of an existing communicator's ranks. Every rank of the parent takes part
/// in each round, also those that have no place in the new communicator.
class SplitOob final : public Oob {
 public:
  SplitOob(Communicator& parent, std::vector<int> members)
      : parent_(parent), members_(std::move(members)) {}

  Status allgather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    std::vector<std::byte> everyone(mine.size() * static_cast<std::size_t>(parent_.nranks()));
    const Request request{.collective = Collective::kAllGather,
                          .type = DataType::kUint8,
                          .count = mine.size(),
                          .send = mine.data(),
                          .recv = everyone.data()};
    // A rank may use up a timeout of its own before it reports what went wrong.
    WHORL_TRY(parent_.run({&request, 1}, 2));
    for (std::size_t i = 0; i < members_.size(); ++i) {
      std::memcpy(all.data() + i * mine.size(),
                  everyone.data() + static_cast<std::size_t>(members_[i]) * mine.size(),
                  mine.size());
    }
    return {};
  }

 private:
  Communicator& parent_;
  std::vector<int> members_;
};

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

Result<Gathering> meet_by_split(Communicator& parent, int color, int key) {
  struct Choice {
    std::int32_t color, key, rank;
  };
  const Choice mine{color, key, parent.rank()};
  std::vector<Choice> all(static_cast<std::size_t>(parent.nranks()));
  const Request request{.collective = Collective::kAllGather,
                        .type = DataType::kUint8,
                        .count = sizeof(Choice),
                        .send = &mine,
                        .recv = all.data()};
  WHORL_TRY(parent.run({&request, 1}));

  std::erase_if(all, [&](const Choice& choice) { return choice.color != color; });
  std::stable_sort(all.begin(), all.end(),
                   [](const Choice& a, const Choice& b) { return a.key < b.key; });
  Gathering meeting;
  std::vector<int> members;
  for (const Choice& choice : all) {
    if (choice.rank == parent.rank()) meeting.rank = static_cast<int>(members.size());
    members.push_back(choice.rank);
  }
  meeting.nranks = static_cast<int>(members.size());
  const auto identity = parent.derive_identity(color);
  if (!identity.ok()) return identity.status();
  meeting.identity = *identity;
  meeting.oob = std::make_unique<SplitOob>(parent, std::move(members));
  return meeting;
}

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

Result<Gathering> meet_by_launcher(std::uint64_t timeout_ns, const Verdict& verdict) {
  const auto launch = detect_launch();
  if (!launch.ok()) return launch.status();
  const Attendant self{.rank = launch->rank,
                       .nranks = launch->nranks,
                       .timeout_ns = timeout_ns,
                       .verdict = &verdict};
  const auto done = [&](Result<Rendezvous> met) -> Result<Gathering> {
    if (!met.ok()) {
      return met.status().with_context(fmt::format("rank {} of {} as started by {}", launch->rank,
                                                   launch->nranks, launch->source));
    }
    return Gathering{.oob = std::move(met->oob),
                     .identity = met->identity,
                     .rank = launch->rank,
                     .nranks = launch->nranks};
  };
  if (launch->store == nullptr && !launch->address.empty()) {
    return done(meet_by_address(launch->address, self));
  }
  if (launch->store == nullptr) { // one rank
    auto alone = meet_in_process(1, timeout_ns);
    if (!alone.ok()) return alone.status();
    return std::move(alone->front());
  }
  // Rank 0 makes an id; the launcher's own key-value space carries it to the others.
  std::array<std::byte, UniqueId::kBytes> bytes{};
  if (launch->rank == 0) {
    const auto id = start_root();
    if (!id.ok()) return id.status();
    const auto encoded = id->encode();
    if (!encoded.ok()) return encoded.status();
    bytes = *encoded;
  }
  const auto shared = share(*launch, bytes, static_cast<std::int64_t>(timeout_ns / 1'000'000));
  if (!shared.ok()) return shared.status();
  if (shared->size() != bytes.size()) {
    return Status::error(Code::kSystemError,
                         fmt::format("{} gave {} bytes instead of the {} that rank 0 stored",
                                     launch->source, shared->size(), bytes.size()));
  }
  std::copy(shared->begin(), shared->end(), bytes.begin());
  const auto id = UniqueId::decode(bytes);
  if (!id.ok()) return id.status();
  return done(meet_by_id(*id, self));
}

} // namespace whorl
