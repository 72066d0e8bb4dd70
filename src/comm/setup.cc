#include "comm/setup.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "base/log.h"
#include "base/params.h"
#include "comm/decisions.h"
#include "comm/link_costs.h"
#include "comm/rank_info.h"
#include "comm/setup_round.h"
#include "topology/host.h"
#include "transports/inproc/transport.h"
#include "transports/shm/transport.h"
#include "transports/tcp/transport.h"

namespace whorl {
namespace {

/// Where the time of a set-up goes, for WHORL_LOG=info.
class Stopwatch {
 public:
  void lap(const char* phase) {
    if (!log_enabled(LogLevel::kInfo)) return;
    const std::uint64_t now = sys().now_ns();
    laps_ += fmt::format(", {} {:.2f} ms", phase, static_cast<double>(now - last_) * 1e-6);
    last_ = now;
  }
  void report(const Setup& setup) const {
    if (laps_.empty()) return;
    log(LogLevel::kInfo,
        fmt::format("rank {} of {} has joined: {:.2f} ms after the meeting{}; digest of choices "
                    "{:016x}",
                    setup.membership->rank, setup.membership->nranks,
                    static_cast<double>(last_ - start_) * 1e-6, laps_, setup.digest()));
  }

 private:
  std::uint64_t start_ = sys().now_ns();
  std::uint64_t last_ = start_;
  std::string laps_;
};

std::unique_ptr<Transport> make_transport(std::string_view name) {
  if (name == "inproc") return std::make_unique<InprocTransport>();
  if (name == "shm") return std::make_unique<ShmTransport>();
  if (name == "tcp") return std::make_unique<TcpTransport>();
  return nullptr;
}

Status make_transports(Setup& setup) {
  for (const std::string& name : setup.options.transports) {
    auto transport = make_transport(name);
    if (transport == nullptr || setup.transports.size() == RankCard{}.addresses.size()) {
      return Status::error(Code::kInvalidUsage,
                           fmt::format("WHORL_TRANSPORTS: \"{}\" is not a transport, or there are "
                                       "more than {}; there are inproc, shm and tcp",
                                       name, RankCard{}.addresses.size()));
    }
    setup.transports.push_back(std::move(transport));
  }
  return {};
}

Status open_trace(Setup& setup, const Identity& identity, int rank, int nranks) {
  if (setup.options.trace.empty()) return {};
  RankCard self;
  describe_local_host(self);
  std::uint32_t job = 0;
  std::memcpy(&job, identity.job.data(), sizeof job);
  auto trace = Trace::open(
      setup.options.trace, setup.options.trace_records,
      {.rank = rank,
       .nranks = nranks,
       .process = fmt::format("host {}, pid {}", self.host_name.data(), self.process_id),
       .pid = static_cast<int>(self.process_id),
       .job = job});
  if (!trace.ok()) return trace.status();
  setup.trace = *std::move(trace);
  return {};
}

/// For every peer the first transport that reaches it.
Status choose_transports(Setup& setup) {
  const Membership& members = *setup.membership;
  const RankCard& self = members.cards[static_cast<std::size_t>(members.rank)];
  setup.transport_of.assign(static_cast<std::size_t>(members.nranks), -1);
  for (int peer = 0; peer < members.nranks; ++peer) {
    if (peer == members.rank) continue;
    int& chosen = setup.transport_of[static_cast<std::size_t>(peer)];
    for (std::size_t i = 0; i < setup.transports.size() && chosen < 0; ++i) {
      const RankCard& card = members.cards[static_cast<std::size_t>(peer)];
      if (setup.transports[i]->reach(self, card, i).reachable) chosen = static_cast<int>(i);
    }
    if (chosen < 0) {
      return Status::error(
          Code::kInvalidUsage,
          fmt::format("{} cannot reach {} by any of the transports {}; allow another one in "
                      "WHORL_TRANSPORTS",
                      members.describe(members.rank), members.describe(peer),
                      fmt::join(setup.options.transports, ",")));
    }
  }
  return {};
}

/// What suits the most demanding transport that this rank uses. Rank 0 decides for all: where any
/// two ranks are not of one host, one of them is not of rank 0's.
std::size_t suitable_slot_bytes(const Setup& setup) {
  // Of a rank that is alone, too: it copies by pieces of this size.
  constexpr std::size_t kLeast = 65536;
  std::size_t bytes = kLeast;
  for (const int index : setup.transport_of) {
    if (index < 0) continue;
    bytes = std::max(bytes, setup.transports[static_cast<std::size_t>(index)]->slot_bytes());
  }
  return bytes;
}

/// They share its largest cache.
int ranks_on_this_machine(const Membership& members) {
  const std::uint64_t self = members.cards[static_cast<std::size_t>(members.rank)].machine_key;
  return static_cast<int>(
      std::count_if(members.cards.begin(), members.cards.end(),
                    [self](const RankCard& card) { return card.machine_key == self; }));
}

/// What one channel's endpoints to all peers occupy, on the rank where that is most.
std::function<std::size_t(int, std::size_t)> endpoint_bytes(const Setup& setup) {
  const Membership& members = *setup.membership;
  std::vector<std::array<std::size_t, 4>> counts; // [rank][transport] peers
  for (const RankCard& self : members.cards) {
    auto& count = counts.emplace_back();
    for (const RankCard& peer : members.cards) {
      if (peer.rank == self.rank) continue;
      for (std::size_t i = 0; i < setup.transports.size(); ++i) {
        if (!setup.transports[i]->reach(self, peer, i).reachable) continue;
        ++count[i];
        break;
      }
    }
  }
  return [&setup, counts = std::move(counts)](int slots, std::size_t slot_bytes) {
    std::size_t most = 0;
    for (const auto& count : counts) {
      std::size_t bytes = 0;
      for (std::size_t i = 0; i < setup.transports.size(); ++i) {
        bytes += count[i] * setup.transports[i]->endpoint_bytes(slots, slot_bytes);
      }
      most = std::max(most, bytes);
    }
    return most;
  };
}

/// How operations wait, and the measurement of links.
WaitPolicy wait_policy(const Setup& setup, double ranks_per_core) {
  WaitPolicy policy{.timeout_ns = setup.options.timeout_ns};
  const bool calls =
      std::any_of(setup.transports.begin(), setup.transports.end(),
                  [](const auto& t) { return t != nullptr && t->polls_by_system_calls(); });
  // Where ranks share cores, another one wants this very core. It waits for the attempts that do
  // not pause (docs/performance_rules.md), but not where each is a system call for every peer.
  const std::uint32_t for_others = calls ? 0 : kEagerAttempts;
  policy.spins = setup.options.spins.value_or(ranks_per_core > 1 ? for_others : policy.spins);
  // What is waited for has to wait for the turns of most ranks of the core. Each of these that
  // yields, or wakes up to look in vain, makes a turn longer.
  constexpr double kManyRanks = 32;
  constexpr std::uint64_t kNapOfRankNs = 50'000;
  if (ranks_per_core > kManyRanks) {
    policy.yield_ns = 0;
    policy.nap_ns =
        std::max(policy.nap_ns, static_cast<std::uint64_t>(ranks_per_core) * kNapOfRankNs);
    policy.first_nap_ns = policy.nap_ns / 4;
  }
  return policy;
}

Status connect_all(Setup& setup) {
  for (std::size_t i = 0; i < setup.transports.size(); ++i) {
    std::vector<int> peers;
    for (int peer = 0; peer < setup.membership->nranks; ++peer) {
      if (setup.transport_of[static_cast<std::size_t>(peer)] == static_cast<int>(i)) {
        peers.push_back(peer);
      }
    }
    if (peers.empty()) {
      setup.transports[i].reset();
      continue;
    }
    WHORL_TRY(setup.transports[i]->connect(*setup.membership, peers, i));
  }
  return {};
}

/// Rank 0's decisions for all ranks.
Result<Decisions> decide_for_all(Setup& setup) {
  std::size_t& slot_bytes = setup.membership->slot_bytes;
  if (slot_bytes == 0) slot_bytes = suitable_slot_bytes(setup);
  return decide(*setup.membership, setup.options, estimate_links(setup), endpoint_bytes(setup));
}

/// Enters what rank 0 has decided.
void adopt(Setup& setup, const Decisions& decided) {
  setup.membership->slots = static_cast<int>(decided.memory.slots);
  setup.membership->slot_bytes = decided.memory.slot_bytes;
  setup.membership->channels = static_cast<int>(decided.memory.channels);
  setup.workspace_bytes = decided.memory.workspace_bytes;
  setup.memory_budget = smallest_budget(*setup.membership);
  setup.shape = *shape_of(decided, *setup.membership);
  setup.selector = decided.selector;
  setup.links = decided.links;
  setup.probed = decided.probe;
}

} // namespace

std::vector<std::vector<Endpoint*>> Setup::endpoints() const {
  std::vector<std::vector<Endpoint*>> table(static_cast<std::size_t>(membership->channels));
  for (int channel = 0; channel < membership->channels; ++channel) {
    for (int peer = 0; peer < membership->nranks; ++peer) {
      const int index = transport_of[static_cast<std::size_t>(peer)];
      table[static_cast<std::size_t>(channel)].push_back(
          index < 0 ? nullptr
                    : transports[static_cast<std::size_t>(index)]->endpoint(peer, channel));
    }
  }
  return table;
}

std::size_t Setup::stream_bytes() const {
  if (options.stream_bytes) return *options.stream_bytes;
  constexpr std::size_t kUnknownCache = 32 << 20;
  const std::size_t known = sys().largest_cache_bytes();
  const auto ranks = static_cast<std::size_t>(ranks_on_this_machine(*membership));
  return (known > 0 ? known : kUnknownCache) / (2 * ranks);
}

std::span<std::byte> Setup::board() const noexcept {
  for (const auto& transport : transports) {
    if (const auto board = transport->board(); !board.empty()) return board;
  }
  return {};
}

FdMailbox* Setup::mailbox() const noexcept {
  for (const auto& transport : transports) {
    if (FdMailbox* const mailbox = transport->mailbox(); mailbox != nullptr) return mailbox;
  }
  return nullptr;
}

void Setup::nap(std::uint64_t max_ns) const noexcept {
  if (transports.empty()) {
    constexpr std::uint64_t kShortNs = 20'000;
    sys().sleep_ns(std::min(max_ns, kShortNs));
    return;
  }
  // Only one transport can be blocked in. With several, sleep in each in turn.
  for (const auto& transport : transports) transport->nap(max_ns / transports.size());
}

std::uint64_t Setup::digest() const noexcept {
  Hash hash;
  hash.mix(std::uint64_t{WHORL_VERSION_CODE});
  for (int c = 0; c < kNumCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    for (std::size_t k = 0; k < Selector::kClasses && selector.has(collective); ++k) {
      hash.mix(selector.pick(collective, std::size_t{1} << k).name);
      hash.mix(0); // between two names
    }
  }
  for (const int number : {shape.nranks, shape.channels}) {
    hash.mix(static_cast<std::uint64_t>(number));
  }
  for (const int rank : shape.ring) hash.mix(static_cast<std::uint64_t>(rank));
  for (const Dimension& dim : shape.dims) {
    hash.mix(static_cast<std::uint64_t>(dim.size));
    hash.mix(dim.algorithm);
  }
  hash.mix(membership->slot_bytes);
  return hash.value();
}

Status sit_out(Oob& oob, int nranks, int done, bool probes) {
  if (done < 1) WHORL_TRY(attend<RankCard>(oob, nranks));
  if (done < 2) WHORL_TRY(attend<Decisions>(oob, nranks));
  if (done < 3) WHORL_TRY(attend<Nothing>(oob, nranks));
  if (!probes) return {};
  if (done < 4) WHORL_TRY(attend<ProbeResult>(oob, nranks));
  if (done < 5) WHORL_TRY(attend<Choice>(oob, nranks));
  return {};
}

Result<Setup> set_up(Oob& oob, int nranks, int rank, const Identity& identity,
                     const Options& options, std::shared_ptr<Verdict> verdict) {
  Setup setup;
  setup.options = options;
  setup.verdict = std::move(verdict);
  Stopwatch phases;

  // Round 1: cards.
  Report<RankCard> first;
  const auto prepare = [&]() -> Status {
    if (nranks > 1) WHORL_TRY(make_transports(setup));
    const auto card = make_card(setup, identity, rank);
    if (!card.ok()) return card.status();
    first.content = *card;
    return {};
  };
  first.set(prepare());
  phases.lap("prepared");
  if (first.code == 0) first.set(open_trace(setup, identity, rank, nranks));
  auto cards = exchange(oob, nranks, first);
  phases.lap("cards");
  if (!cards.ok()) return cards.status();

  // Round 2: rank 0's decisions. Before anybody connects, all know that all are going to.
  Report<Decisions> second;
  const auto prepare_links = [&]() -> Status {
    WHORL_TRY(make_membership(setup, *std::move(cards), identity, rank));
    WHORL_TRY(choose_transports(setup));
    if (rank != 0) return {};
    const auto decisions = decide_for_all(setup);
    if (decisions.ok()) second.content = *decisions;
    return decisions.status();
  };
  second.set(prepare_links());
  const auto decisions = exchange(oob, nranks, second);
  phases.lap("decisions");
  if (!decisions.ok()) return decisions.status();
  const Decisions& decided = decisions->front();

  // Round 3: whether every rank is connected.
  Status connected = check(decided, *setup.membership);
  if (connected.ok()) {
    adopt(setup, decided);
    connected = connect_all(setup);
  }
  phases.lap("connected");
  Report<Nothing> third;
  third.set(connected);
  if (const auto all = exchange(oob, nranks, third); !all.ok()) {
    // This rank's own words are more precise than what the others could be told.
    return connected.ok() ? all.status() : connected;
  }
  phases.lap("outcomes");
  setup.policy = wait_policy(setup, decided.links.ranks_per_core);
  if (decided.probe) {
    WHORL_TRY(choose_by_measuring(setup, oob));
    phases.lap("measured");
  }
  phases.report(setup);

  // Transports without peers have been closed; the rest moves up.
  std::vector<int> new_index(setup.transports.size(), -1);
  int kept = 0;
  for (std::size_t i = 0; i < setup.transports.size(); ++i) {
    if (setup.transports[i] != nullptr) new_index[i] = kept++;
  }
  for (int& index : setup.transport_of) {
    if (index >= 0) index = new_index[static_cast<std::size_t>(index)];
  }
  std::erase(setup.transports, nullptr);

  setup.verify = options.verify;
  return setup;
}

Result<Setup> rehearse(const Options& options, int nranks, int nhosts) {
  Setup setup;
  setup.options = options;
  setup.verdict = std::make_shared<Verdict>();
  if (nranks > 1) WHORL_TRY(make_transports(setup));
  const auto card = make_card(setup, {}, 0);
  if (!card.ok()) return card.status();
  std::vector<RankCard> cards(static_cast<std::size_t>(nranks), *card);
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const std::uint64_t host = rank * static_cast<std::uint64_t>(nhosts) / cards.size();
    cards[rank].rank = static_cast<std::uint32_t>(rank);
    cards[rank].host_key += host;
    cards[rank].machine_key += host;
    cards[rank].process_key += rank;
  }
  WHORL_TRY(make_membership(setup, std::move(cards), {}, 0));
  WHORL_TRY(choose_transports(setup));
  const auto decisions = decide_for_all(setup);
  if (!decisions.ok()) return decisions.status();
  adopt(setup, *decisions);
  setup.probed = false;
  return setup;
}

} // namespace whorl
