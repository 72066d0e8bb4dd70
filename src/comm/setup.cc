#include "comm/setup.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "base/hash.h"
#include "base/log.h"
#include "comm/arrangement.h"
#include "comm/decisions.h"
#include "comm/link_costs.h"
#include "comm/placement.h"
#include "comm/rank_info.h"
#include "comm/records.h"
#include "comm/setup_report.h"
#include "comm/setup_round.h"
#include "comm/setup_transports.h"
#include "tuning/memory_budget.h"

namespace whorl {
namespace {

/// Times of the phases of a set-up, for WHORL_LOG=info.
class Stopwatch {
 public:
  void lap(const char* phase) {
    if (!log_enabled(LogLevel::kInfo)) return;
    const std::uint64_t now = sys().now_ns();
    laps_ += fmt::format(", {} {:.2f} ms", phase, static_cast<double>(now - last_) * 1e-6);
    last_ = now;
  }
  void report(const Setup& setup) const {
    if (laps_.empty() || setup.membership->rank != 0) return; // the same on all ranks
    log(LogLevel::kInfo,
        fmt::format("rank {} has joined {}: {:.2f} ms after the meeting{}", setup.membership->rank,
                    setup.describe(), static_cast<double>(last_ - start_) * 1e-6, laps_));
  }

 private:
  std::uint64_t start_ = sys().now_ns();
  std::uint64_t last_ = start_;
  std::string laps_;
};

/// Returns the policy by which operations and the measurement of links wait.
WaitPolicy wait_policy(const Setup& setup, double ranks_per_core) {
  WaitPolicy policy{.timeout_ns = setup.options.timeout_ns};
  const bool calls =
      std::any_of(setup.transports.begin(), setup.transports.end(),
                  [](const auto& t) { return t != nullptr && t->traits().polls_by_system_calls; });
  // If ranks share cores, another rank waits for this core. A few attempts without a pause are
  // still worth their time (docs/performance_rules.md), but not if each is a system call for every
  // peer.
  const std::uint32_t for_others = calls ? 0 : kEagerAttempts;
  // A peer fills a message of tens of KiB within a microsecond or two. A yield in that time costs
  // half a microsecond more.
  constexpr std::uint32_t kSpinsOfOwnCore = 80;
  const std::uint32_t for_self = calls ? policy.spins : kSpinsOfOwnCore;
  policy.spins = setup.options.spins.value_or(ranks_per_core > 1 ? for_others : for_self);
  // The message that this rank waits for comes after the turns of most ranks of the core. Each rank
  // that yields, or wakes up in vain, makes a turn longer.
  constexpr double kManyRanks = 32;
  constexpr std::uint64_t kBlockPerRankNs = 50'000;
  if (ranks_per_core > kManyRanks) {
    policy.yield_ns = 0;
    policy.block_ns =
        std::max(policy.block_ns, static_cast<std::uint64_t>(ranks_per_core) * kBlockPerRankNs);
    policy.first_block_ns = policy.block_ns / 4;
  }
  return policy;
}

/// Makes rank 0's decisions for all ranks.
Result<Decisions> decide_for_all(Setup& setup) {
  std::size_t& slot_bytes = setup.membership->slot_bytes;
  if (slot_bytes == 0) {
    slot_bytes = std::max(suitable_slot_bytes(setup), least_slot_bytes(setup.membership->nranks));
  }
  const auto costs = estimate_links(setup);
  if (!costs.ok()) return costs.status();
  return decide(*setup.membership, setup.options, *costs, endpoint_bytes(setup));
}

/// Returns the error of a rank that has failed in connecting, or been told that another one has.
Status failed_connecting(const Status& own, const Status& reported, bool another_was_first) {
  const bool own_is_reason = !own.ok() && own.code() != Code::kRemoteError;
  const bool knows_more = another_was_first || reported.code() != Code::kRemoteError;
  // This rank's own error is more precise than the report, whose text has a limit.
  if (own_is_reason || (!own.ok() && !knows_more)) return own;
  return reported.ok() ? own : reported;
}

/// Returns the error of a death that the transports find within a short time; it names the rank
/// that has died. Returns `why` if the transports find no death.
Status with_death(const Setup& setup, const Status& why) {
  constexpr std::uint64_t kWaitNs = 3 * kAfterDeathNs, kAskAgainNs = 2'000'000;
  const std::uint64_t until_ns = sys().now_ns() + kWaitNs;
  for (;;) {
    for (const auto& transport : setup.transports) transport->poll_failures(0);
    if (setup.comm_error->is_set()) return setup.comm_error->status();
    if (sys().now_ns() >= until_ns) return why;
    sys().sleep_ns(kAskAgainNs);
  }
}

/// Enters rank 0's decisions into the set-up.
void adopt(Setup& setup, const Decisions& decided) {
  setup.membership->slots = static_cast<int>(decided.memory.slots);
  setup.membership->slot_bytes = decided.memory.slot_bytes;
  setup.membership->channels = static_cast<int>(decided.memory.channels);
  setup.workspace_bytes = decided.memory.workspace_bytes;
  setup.shape = *shape_of(decided, *setup.membership);
  setup.selector = decided.selector;
  setup.links = decided.links;
  setup.probed = decided.probe;
}

} // namespace

std::size_t Setup::nontemporal_bytes() const {
  if (options.nontemporal_bytes) return *options.nontemporal_bytes;
  constexpr std::size_t kUnknownCache = 32 << 20;
  const std::size_t known = sys().total_cache_bytes();
  const auto ranks = static_cast<std::size_t>( // which share the last-level caches
      membership->ranks_sharing(&PeerInfo::machine_key, membership->rank));
  // Inputs and outputs that just fit are quicker in the cache.
  return (known > 0 ? known : kUnknownCache) / (2 * ranks) + 1;
}

bool Setup::divides_one_way() const noexcept {
  constexpr std::size_t kSlotOfMemory = 64 * 1024; // over TCP they are larger
  return links.ranks_per_core <= 1 && membership->slot_bytes <= kSlotOfMemory &&
         membership->on_one_host();
}

std::string_view Setup::transport_name(int peer) const noexcept {
  if (peer == membership->rank) return "";
  const int index = transport_of[static_cast<std::size_t>(peer)];
  return transports[static_cast<std::size_t>(index)]->traits().name;
}

void Setup::block(std::uint64_t max_ns) const noexcept {
  if (transports.empty()) {
    constexpr std::uint64_t kShortNs = 20'000;
    sys().sleep_ns(std::min(max_ns, kShortNs));
    return;
  }
  // Only one transport can be blocked in. With several, sleep in each in turn.
  for (const auto& transport : transports) transport->block(max_ns / transports.size());
}

std::uint64_t Setup::digest() const noexcept {
  Hash hash;
  hash.mix(std::uint64_t{WHORL_RELEASE_CODE});
  hash.mix(std::uint64_t{divides_one_way()});
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
  for (const int size : shape.groups) hash.mix(static_cast<std::uint64_t>(size));
  for (const int rank : shape.order) hash.mix(static_cast<std::uint64_t>(rank));
  for (const Dimension& dim : shape.dims) {
    hash.mix(static_cast<std::uint64_t>(dim.size));
    hash.mix(dim.algorithm);
  }
  hash.mix(membership->slot_bytes);
  return hash.value();
}

std::string Setup::describe() const {
  const std::vector<PeerInfo>& peers = membership->peers;
  return fmt::format("{}; topology {:016x}, choices {:016x}",
                     whorl::describe(arrange(peers), peers), topology_digest(peers), digest());
}

Status attend_remaining_rounds(Oob& oob, int nranks, int done, bool probes, const Status& why) {
  if (done < 1) WHORL_TRY(attend<PeerInfo>(oob, nranks, why));
  if (done < 2) WHORL_TRY(attend<Decisions>(oob, nranks, why));
  if (done < 3) WHORL_TRY(attend<Nothing>(oob, nranks, why));
  if (!probes) return {};
  if (done < 4) WHORL_TRY(attend<ProbeResult>(oob, nranks, why));
  if (done < 5) WHORL_TRY(attend<Choice>(oob, nranks, why));
  return {};
}

Result<Setup> set_up(Oob& oob, int nranks, int rank, const Identity& identity,
                     const Options& options, std::shared_ptr<CommError> comm_error) {
  Setup setup;
  setup.options = options;
  setup.comm_error = std::move(comm_error);
  Stopwatch phases;

  // Round 1: PeerInfos.
  SetupReport<PeerInfo> first;
  const auto prepare = [&]() -> Status {
    WHORL_TRY(open_records(setup, identity, rank, nranks));
    if (nranks > 1) WHORL_TRY(make_transports(setup, rank));
    const auto info = make_peer_info(setup, identity, rank);
    if (!info.ok()) return info.status();
    first.content = *info;
    setup.recorder->creating("meeting the other ranks");
    return {};
  };
  // Ranks of the caller's own all-gather learn of a failure in these rounds alone.
  first.set(without_exceptions(prepare));
  phases.lap("prepared");
  auto peers = exchange(oob, nranks, first);
  phases.lap("peers");
  if (!peers.ok()) return peers.status();

  // Round 2: rank 0's decisions. Before anybody connects, all know that all are going to.
  SetupReport<Decisions> second;
  const auto prepare_links = [&]() -> Status {
    WHORL_TRY(make_membership(setup, *std::move(peers), identity, rank));
    WHORL_TRY(choose_transports(setup));
    // Rank 0 decides, but a mistake on another rank is not to pass in silence.
    if (rank != 0) {
      return options.made_of_another ? Status() : parse_dims(options.dims, nranks).status();
    }
    if (log_enabled(LogLevel::kInfo)) {
      for (const std::string& line : describe_choices(setup)) log(LogLevel::kInfo, line);
    }
    const auto decisions = decide_for_all(setup);
    if (decisions.ok()) second.content = *decisions;
    return decisions.status();
  };
  second.set(without_exceptions(prepare_links));
  const auto decisions = exchange(oob, nranks, second);
  phases.lap("decisions");
  if (!decisions.ok()) return decisions.status();
  const Decisions& decided = decisions->front();

  // Round 3: whether every rank is connected.
  const Status connected = without_exceptions([&]() -> Status {
    WHORL_TRY(check(decided, *setup.membership));
    adopt(setup, decided);
    setup.recorder->creating("connecting to the other ranks");
    setup.membership->check_others = [&oob] { return oob.check(); };
    return connect_all(setup);
  });
  setup.membership->check_others = nullptr;
  phases.lap("connected");
  // The rank that was first has told this one, and reports why.
  const bool another_was_first = !connected.ok() && !oob.check().ok();
  if (!connected.ok()) WHORL_TRY(oob.give_up(connected));
  setup.recorder->creating("waiting until the other ranks are connected");
  SetupReport<Nothing> third;
  if (!another_was_first) third.set(connected);
  const auto all = exchange(oob, nranks, third);
  if (!all.ok() || !connected.ok()) {
    Status why = failed_connecting(connected, all.status(), another_was_first);
    if (!connected.ok()) return why;
    // A rank that has heard from all may have the communicator, and wait for this one.
    drop_closed_transports(setup);
    if (oob.was_cut_off()) why = with_death(setup, why);
    for (const auto& transport : setup.transports) transport->notify_peers(why);
    return why;
  }
  phases.lap("outcomes");
  setup.policy = wait_policy(
      setup, std::max(decided.links.ranks_per_core, ranks_per_processor(*setup.membership, rank)));
  // A thread that carries out operations beside the program takes the core of the program or of
  // another rank if there is no other, and switching between them costs time.
  constexpr std::uint64_t kPatienceNs = 2'000'000;
  static std::atomic<bool> crowded{false}; // by any communicator of this process
  if (!has_spare_processor(*setup.membership, rank)) crowded.store(true);
  setup.patience_ns = crowded.load() ? kPatienceNs : 0;
  warn_of_places(*setup.membership);
  spread_over_processors(*setup.membership);
  if (decided.probe) {
    WHORL_TRY(choose_by_measuring(setup, oob));
    phases.lap("measured");
  }
  phases.report(setup);

  drop_closed_transports(setup);
  setup.recorder->ready();
  return setup;
}

Result<Setup> rehearse(const Options& options, const RehearsedHosts& hosts) {
  const int nranks = std::accumulate(hosts.ranks.begin(), hosts.ranks.end(), 0);
  Setup setup;
  setup.options = options;
  setup.comm_error = std::make_shared<CommError>();
  if (nranks > 1) WHORL_TRY(make_transports(setup, 0));
  const auto info = make_peer_info(setup, {}, 0);
  if (!info.ok()) return info.status();
  std::vector<PeerInfo> peers(static_cast<std::size_t>(nranks), *info);
  std::size_t rank = 0;
  for (std::size_t host = 0; host < hosts.ranks.size(); ++host) {
    for (int i = 0; i < hosts.ranks[host]; ++i, ++rank) {
      peers[rank].rank = static_cast<std::uint32_t>(rank);
      peers[rank].host_key += host;
      if (!hosts.one_machine) peers[rank].machine_key += host;
      peers[rank].process_key += rank;
    }
  }
  WHORL_TRY(make_membership(setup, std::move(peers), {}, 0));
  WHORL_TRY(choose_transports(setup));
  const auto decisions = decide_for_all(setup);
  if (!decisions.ok()) return decisions.status();
  adopt(setup, *decisions);
  setup.probed = false;
  return setup;
}

} // namespace whorl
