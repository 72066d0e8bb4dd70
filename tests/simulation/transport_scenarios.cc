// Ranks of one host over the transport through shared memory: messages without a copy, failures of
// a rank, deaths, and leaving.
#include <memory>

#include "simulation/ranks.h"
#include "simulation/scenario_list.h"

namespace whorl::simulation {
namespace {

constexpr std::size_t kSmallest = kMinSharedBytes;

/// Streams between all pairs of ranks, by [from][to].
using Streams = std::vector<std::vector<Stream>>;

Streams make_streams(int ranks, std::uint64_t most, const std::vector<std::size_t>& sizes) {
  Streams streams(static_cast<std::size_t>(ranks),
                  std::vector<Stream>(static_cast<std::size_t>(ranks)));
  for (auto& from : streams) {
    for (Stream& stream : from) {
      stream = {.salt = world().random().next() >> 16,
                .messages = world().random().below(most + 1),
                .sizes = sizes};
    }
  }
  return streams;
}

/// Traffic of one rank with all others.
class Traffic {
 public:
  Traffic(Rank& rank, Host& host, const Streams& streams) {
    const auto self = static_cast<std::size_t>(rank.number());
    const std::size_t peers = streams.size() - 1;
    // The first half of the heap has sources, the second one receive buffers.
    const std::span<std::byte> heap = host.heap(rank.number());
    const std::size_t part = heap.size() / (2 * peers);
    std::size_t at = 0;
    for (std::size_t peer = 0; peer < streams.size(); ++peer) {
      if (peer == self) continue;
      Endpoint& endpoint = *rank.transport().endpoint(static_cast<int>(peer), 0);
      senders_.push_back(
          std::make_unique<Sender>(endpoint, streams[self][peer], heap.subspan(at, part)));
      receivers_.push_back(std::make_unique<Receiver>(endpoint, streams[peer][self],
                                                      heap.subspan(heap.size() / 2 + at, part)));
      both_.emplace_back(*senders_.back(), *receivers_.back());
      done_.push_back(false);
      at += part;
    }
  }
  Progress step() {
    Progress all = Progress::kDone;
    for (std::size_t i = 0; i < both_.size(); ++i) {
      if (done_[i]) continue;
      const Progress one = both_[i]();
      done_[i] = one == Progress::kDone;
      if (one == Progress::kAdvanced) all = one;
      if (one == Progress::kIdle && all == Progress::kDone) all = one;
    }
    return all;
  }
  /// Writes to all memory that peers have read or written.
  void spoil() {
    for (auto& sender : senders_) sender->spoil_sources();
    for (auto& receiver : receivers_) receiver->spoil_buffers();
  }

 private:
  std::vector<std::unique_ptr<Sender>> senders_;
  std::vector<std::unique_ptr<Receiver>> receivers_;
  std::vector<Both> both_;
  std::vector<bool> done_;
};

/// Heap with room for three sources and kRecvBuffersAhead buffers of the largest messages, for each
/// of the peers.
std::size_t heap_bytes(int ranks, std::size_t largest) {
  return static_cast<std::size_t>(ranks - 1) * 2 * kRecvBuffersAhead * largest;
}

HostShape zero_copy_shape() {
  constexpr std::size_t kLargest = 2 * kSmallest;
  return {.ranks = 2,
          .slots = static_cast<std::uint32_t>(1 + world().random().below(4)),
          .slot_bytes = kLargest,
          .heap_bytes = heap_bytes(2, kLargest)};
}

std::vector<std::size_t> zero_copy_sizes() {
  return {kSmallBytes, kSmallest - 1, kSmallest, kSmallest, 2 * kSmallest};
}

/// Requires that the error of a rank names the cause of the failure.
void require_name(const Status& error, const std::string& cause) {
  world().require(error.message().find(cause) != std::string::npos,
                  "the error does not name the cause, which is \"{}\": {}", cause, error.message());
}

} // namespace

void run_zero_copy() {
  Host host(zero_copy_shape());
  const Streams streams =
      make_streams(2, world().random().one_of<std::uint64_t>(6, 20), zero_copy_sizes());
  run_ranks(host, [&](Rank& rank) {
    rank.connect();
    Traffic traffic(rank, host, streams);
    const WaitResult result = rank.wait([&] { return traffic.step(); }, "messages");
    world().require(result == WaitResult::kReady, "{}", rank.error().status().message());
    traffic.spoil();
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    world().require(host.state(rank).touching.load() == 0,
                    "rank {} still counts accesses to its peer's memory", rank);
  }
}

void run_revoke() {
  Host host(zero_copy_shape());
  const Streams streams = make_streams(2, 12, zero_copy_sizes());
  const std::uint64_t failing = 1 + world().random().below(3); // bits by rank
  const std::uint64_t at = world().random().below(30);
  run_ranks(host, [&](Rank& rank) {
    rank.connect();
    Traffic traffic(rank, host, streams);
    std::uint64_t steps = 0;
    const auto step = [&] {
      if ((failing >> rank.number() & 1) != 0 && steps++ == at) return Progress::kFailed;
      return traffic.step();
    };
    if (rank.wait(step, "messages") == WaitResult::kReady) return traffic.spoil();
    if (!rank.error().is_set()) {
      rank.error().set(Status::error(Code::kSystemError, "cause 7"));
      rank.transport().notify_peers(rank.error().status());
    } else {
      require_name(rank.error().status(), "cause 7");
    }
    rank.revoke_access();
  });
}

void run_death() {
  const int ranks = 2 + static_cast<int>(world().random().below(2));
  const bool zero_copy = world().random().chance(50);
  HostShape shape = zero_copy_shape();
  shape.ranks = ranks;
  shape.heap_bytes = zero_copy ? heap_bytes(ranks, shape.slot_bytes) : 0;
  if (!zero_copy) shape.slot_bytes = 128;
  Host host(shape);
  const Streams streams = make_streams(
      ranks, 6, zero_copy ? zero_copy_sizes() : std::vector<std::size_t>{0, kSmallBytes, 41, 128});
  const auto victim = world().random().below(static_cast<std::uint64_t>(ranks));
  run_ranks(
      host,
      [&](Rank& rank) {
        rank.connect();
        Traffic traffic(rank, host, streams);
        const auto step = [&] { return traffic.step(); };
        if (!rank.error().is_set() && rank.wait(step, "messages") == WaitResult::kReady) {
          return traffic.spoil();
        }
        require_name(rank.error().status(),
                     rank.membership().describe(static_cast<int>(victim)) + " died");
        world().require(world().scheduler().died(host.fibres[victim]), "nobody died, but: {}",
                        rank.error().status().message());
        rank.transport().notify_peers(rank.error().status());
        rank.revoke_access();
      },
      [&] { world().scheduler().kill_at(host.fibres[victim], 1 + world().random().below(600)); });
}

void run_leave() {
  // Rank 0 leaves early. Rank 1 waits for it, or for messages of rank 2 only.
  const bool needed = world().random().chance(50);
  Host host({.ranks = 3,
             .slots = static_cast<std::uint32_t>(1 + world().random().below(3)),
             .slot_bytes = 128});
  const Streams streams = make_streams(3, 6, {0, kSmallBytes, 41, 128});
  const std::uint64_t steps = world().random().below(20);
  std::uint64_t sent = 0; // messages that rank 0 sent before it left
  run_ranks(host, [&](Rank& rank) {
    rank.connect();
    if (rank.number() != 1) {
      Sender sender(*rank.transport().endpoint(1, 0),
                    streams[static_cast<std::size_t>(rank.number())][1], {});
      if (rank.number() == 0) {
        for (std::uint64_t i = 0; i < steps; ++i) sender.step();
        sent = sender.sent();
      } else if (!needed) {
        rank.wait(
            [&] {
              sys().sleep_ns(world().random().below(3'000'000));
              return sender.step();
            },
            "room for messages");
      }
      return;
    }
    const std::size_t from = needed ? 0 : 2;
    Receiver receiver(*rank.transport().endpoint(static_cast<int>(from), 0), streams[from][1], {});
    if (rank.wait([&] { return receiver.step(); }, "messages") == WaitResult::kReady) return;
    world().require(needed, "rank 1 does not need rank 0, but: {}",
                    rank.error().status().message());
    require_name(rank.error().status(), "rank 0 (host , pid 0) has destroyed its communicator");
    world().require(receiver.received() == sent, "{} messages were sent, but {} came", sent,
                    receiver.received());
  });
}

void run_sleep() {
  // Long pauses between messages of several ranks, through which rank 0 sleeps.
  const int ranks = 2 + static_cast<int>(world().random().below(2));
  Host host({.ranks = ranks, .slots = 2, .slot_bytes = 64});
  const Streams streams = make_streams(ranks, 4, {0, kSmallBytes});
  run_ranks(host, [&](Rank& rank) {
    rank.connect();
    if (rank.number() > 0) {
      Sender sender(*rank.transport().endpoint(0, 0),
                    streams[static_cast<std::size_t>(rank.number())][0], {});
      const auto step = [&] {
        const Progress progress = sender.step();
        if (progress == Progress::kAdvanced) sys().sleep_ns(world().random().below(40'000'000));
        return progress;
      };
      rank.wait(step, "room for messages");
      return;
    }
    std::vector<Receiver> receivers;
    for (std::size_t from = 1; from < static_cast<std::size_t>(ranks); ++from) {
      receivers.emplace_back(*rank.transport().endpoint(static_cast<int>(from), 0),
                             streams[from][0], std::span<std::byte>());
    }
    rank.wait(
        [&] {
          Progress all = Progress::kDone;
          for (Receiver& receiver : receivers) {
            const Progress one = receiver.step();
            if (one == Progress::kAdvanced || all == Progress::kDone) all = one;
          }
          return all;
        },
        "messages");
  });
}

void run_errors() {
  const int ranks = 2 + static_cast<int>(world().random().below(2));
  Host host({.ranks = ranks, .slots = 1, .slot_bytes = 64});
  std::string texts[] = {std::string(40, 'a'), std::string(300, 'b'), std::string(3000, 'c')};
  std::swap(texts[0], texts[world().random().below(3)]);
  // Each rank waits for a message that never comes; some fail by themselves meanwhile.
  const auto failing = 1 + world().random().below(static_cast<std::uint64_t>(ranks));
  run_ranks(host, [&](Rank& rank) {
    rank.connect();
    std::uint64_t steps = world().random().below(world().random().one_of<std::uint64_t>(20, 100));
    const auto number = static_cast<std::size_t>(rank.number());
    const auto step = [&] {
      if (number < failing && steps-- == 0) {
        rank.transport().fail_all(Status::error(Code::kRemoteError, texts[number]));
        return Progress::kFailed;
      }
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer != rank.number()) rank.transport().endpoint(peer, 0)->try_peek();
      }
      return Progress::kIdle;
    };
    if (rank.error().is_set()) return;
    rank.wait(step, "the error of another rank");
    std::string whole = rank.error().status().message();
    for (const std::string& text : texts) {
      if (whole == text || whole == text.substr(0, SegmentHeader{}.text.size() - 1)) return;
    }
    world().fail(fmt::format("an error came mutilated: {}", whole));
  });
}

void run_stuck() {
  Host host({.ranks = 2, .slots = 1, .slot_bytes = 64});
  run_ranks(host, [&](Rank& rank) {
    rank.connect();
    if (rank.number() == 0) {
      for (std::uint32_t i = 1; i <= 5; ++i) {
        rank.transport().tell_stuck({.fingerprint = {.sequence = i, .count_plan = i},
                                     .waits_for = static_cast<std::int32_t>(i)},
                                    {});
      }
      return;
    }
    std::uint32_t before = 0;
    for (int i = 0; i < 8; ++i) {
      const auto stuck = rank.transport().find_stuck(0);
      if (!stuck) continue;
      const std::uint32_t now = stuck->fingerprint.sequence;
      world().require(now >= before && stuck->fingerprint.count_plan == now &&
                          stuck->waits_for == static_cast<std::int32_t>(now),
                      "found parts of different operations: {}, {} and {}", now,
                      stuck->fingerprint.count_plan, stuck->waits_for);
      before = now;
    }
  });
}

} // namespace whorl::simulation
