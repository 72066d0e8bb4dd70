#include "comm/setup.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>

#include "base/hash.h"
#include "base/log.h"
#include "base/params.h"
#include "comm/arrangement.h"
#include "comm/decisions.h"
#include "comm/link_costs.h"
#include "comm/place.h"
#include "comm/placement.h"
#include "comm/rank_info.h"
#include "comm/records.h"
#include "comm/setup_report.h"
#include "comm/setup_round.h"
#include "topology/host.h"
#include "transports/faulty/transport.h"
#include "transports/inproc/transport.h"
#include "transports/shm/transport.h"
#include "transports/tcp/transport.h"
#include "transports/ucx/make.h"
#include "transports/verbs/verbs.h"

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

/// Makes a transport; null if there is none of that name.
Result<std::unique_ptr<Transport>> make_transport(std::string_view name, const Setup& setup,
                                                  int rank) {
  std::unique_ptr<Transport> made;
  if (name == "inproc") made = std::make_unique<InprocTransport>();
  if (name == "shm") made = std::make_unique<ShmTransport>(setup.node);
  if (name == "verbs") {
    made = make_verbs_transport(
        {.number = static_cast<std::uint32_t>(rank),
         .nearest = nearest_rdma_devices,
         .unwanted = setup.options.encrypts ? "WHORL_ENCRYPT=1, and what RDMA devices send is not "
                                              "encrypted"
                                            : ""});
  }
  if (name == "tcp") made = std::make_unique<TcpTransport>(setup.options.encrypts);
  if (name == "ucx") return make_ucx_transport();
  return made;
}

/// Puts each transport into one with faults, if there is to be any.
Status add_faults(std::vector<std::unique_ptr<Transport>>& transports) {
  const std::string faults = param_text(Param::kFaulty);
  if (faults.empty()) return {};
  const auto settings = FaultySettings::parse(faults);
  if (!settings.ok()) return settings.status();
  for (auto& transport : transports) {
    transport = std::make_unique<FaultyTransport>(std::move(transport), *settings);
  }
  return {};
}

Status make_transports(Setup& setup, int rank) {
  for (const std::string& name : setup.options.transports) {
    auto transport = make_transport(name, setup, rank);
    if (!transport.ok()) return transport.status();
    if (*transport == nullptr || setup.transports.size() == PeerInfo{}.addresses.size()) {
      return Status::error(Code::kInvalidUsage,
                           fmt::format("WHORL_TRANSPORTS: \"{}\" is not a transport, or there are "
                                       "more than {}; there are inproc, shm, verbs, ucx and tcp",
                                       name, PeerInfo{}.addresses.size()));
    }
    setup.transports.push_back(*std::move(transport));
  }
  return add_faults(setup.transports);
}

/// Describes why transports are of no use here, as the end of a sentence.
std::string absences(const Setup& setup) {
  std::string text;
  for (const auto& transport : setup.transports) {
    if (transport->absence().empty()) continue;
    text += fmt::format("; rank {} has no {}: {}", setup.membership->rank, transport->traits().name,
                        transport->absence());
  }
  return text;
}

/// Warns, once in a process, where a peer is reached by a slower transport because a better one has
/// a fault.
void warn_of_faults(const Setup& setup) {
  for (std::size_t i = 0; i < setup.transports.size(); ++i) {
    const Transport& absent = *setup.transports[i];
    const auto slower = std::find_if(setup.transport_of.begin(), setup.transport_of.end(),
                                     [i](int index) { return index > static_cast<int>(i); });
    if (!absent.absence_is_a_fault() || slower == setup.transport_of.end()) continue;
    static std::once_flag once;
    std::call_once(once, [&] {
      log(LogLevel::kWarn,
          fmt::format("{} is used instead of {}, which may be slower: {}",
                      setup.transports[static_cast<std::size_t>(*slower)]->traits().name,
                      absent.traits().name, absent.absence()));
    });
  }
}

/// Chooses for every peer the first transport that reaches it.
Status choose_transports(Setup& setup) {
  const Membership& members = *setup.membership;
  const PeerInfo& self = members.peers[static_cast<std::size_t>(members.rank)];
  setup.transport_of.assign(static_cast<std::size_t>(members.nranks), -1);
  for (int peer = 0; peer < members.nranks; ++peer) {
    if (peer == members.rank) continue;
    int& chosen = setup.transport_of[static_cast<std::size_t>(peer)];
    chosen = setup.first_reaching(self, members.info(peer));
    if (chosen < 0) {
      return Status::error(
          Code::kInvalidUsage,
          fmt::format("{} cannot reach {} by any of the transports {}; allow another one in "
                      "WHORL_TRANSPORTS{}",
                      members.describe(members.rank), members.describe(peer),
                      fmt::join(setup.options.transports, ","), absences(setup)));
    }
  }
  warn_of_faults(setup);
  return {};
}

/// Returns the largest slot size among the transports that this rank uses. Rank 0's result serves
/// all ranks: where two ranks are on different hosts, one of them is on another host than rank 0.
std::size_t suitable_slot_bytes(const Setup& setup) {
  // Also for a single rank, which copies in pieces of this size.
  constexpr std::size_t kMin = 65536;
  std::size_t bytes = kMin;
  for (const int index : setup.transport_of) {
    if (index < 0) continue;
    bytes = std::max(bytes, setup.transports[static_cast<std::size_t>(index)]->traits().slot_bytes);
  }
  return bytes;
}

/// Returns the number of ranks on this rank's machine, which share its last-level caches.
int ranks_on_this_machine(const Membership& members) {
  const std::uint64_t self = members.peers[static_cast<std::size_t>(members.rank)].machine_key;
  return static_cast<int>(
      std::count_if(members.peers.begin(), members.peers.end(),
                    [self](const PeerInfo& info) { return info.machine_key == self; }));
}

/// Returns a function that gives the memory which one channel's endpoints to all peers occupy on
/// the rank where that is most.
std::function<std::size_t(int, std::size_t)> endpoint_bytes(const Setup& setup) {
  const Membership& members = *setup.membership;
  std::vector<std::array<std::size_t, 4>> counts; // [rank][transport] peers
  for (const PeerInfo& self : members.peers) {
    auto& count = counts.emplace_back();
    for (const PeerInfo& peer : members.peers) {
      if (peer.rank == self.rank) continue;
      const int transport = setup.first_reaching(self, peer);
      if (transport >= 0) ++count[static_cast<std::size_t>(transport)];
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

/// Makes rank 0's decisions for all ranks.
Result<Decisions> decide_for_all(Setup& setup) {
  std::size_t& slot_bytes = setup.membership->slot_bytes;
  if (slot_bytes == 0) slot_bytes = suitable_slot_bytes(setup);
  const auto costs = estimate_links(setup);
  if (!costs.ok()) return costs.status();
  return decide(*setup.membership, setup.options, *costs, endpoint_bytes(setup));
}

/// Enters rank 0's decisions into the set-up.
void adopt(Setup& setup, const Decisions& decided) {
  setup.membership->slots = static_cast<int>(decided.memory.slots);
  setup.membership->slot_bytes = decided.memory.slot_bytes;
  setup.membership->channels = static_cast<int>(decided.memory.channels);
  setup.workspace_bytes = decided.memory.workspace_bytes;
  setup.memory_budget = setup.membership->smallest_budget();
  setup.shape = *shape_of(decided, *setup.membership);
  setup.selector = decided.selector;
  setup.links = decided.links;
  setup.probed = decided.probe;
}

} // namespace

int Setup::first_reaching(const PeerInfo& one, const PeerInfo& other) const {
  for (std::size_t i = 0; i < transports.size(); ++i) {
    if (transports[i] != nullptr && transports[i]->reach(one, other, i).reachable) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

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

std::size_t Setup::nontemporal_bytes() const {
  if (options.nontemporal_bytes) return *options.nontemporal_bytes;
  constexpr std::size_t kUnknownCache = 32 << 20;
  const std::size_t known = sys().total_cache_bytes();
  const auto ranks = static_cast<std::size_t>(ranks_on_this_machine(*membership));
  // Inputs and outputs that just fit are quicker in the cache.
  return (known > 0 ? known : kUnknownCache) / (2 * ranks) + 1;
}

bool Setup::divides_one_way() const noexcept {
  constexpr std::size_t kSlotOfMemory = 64 * 1024; // over TCP they are larger
  const std::vector<PeerInfo>& peers = membership->peers;
  return links.ranks_per_core <= 1 && membership->slot_bytes <= kSlotOfMemory &&
         std::all_of(peers.begin(), peers.end(),
                     [&](const PeerInfo& info) { return info.host_key == peers[0].host_key; });
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

Status attend_remaining_rounds(Oob& oob, int nranks, int done, bool probes) {
  if (done < 1) WHORL_TRY(attend<PeerInfo>(oob, nranks));
  if (done < 2) WHORL_TRY(attend<Decisions>(oob, nranks));
  if (done < 3) WHORL_TRY(attend<Nothing>(oob, nranks));
  if (!probes) return {};
  if (done < 4) WHORL_TRY(attend<ProbeResult>(oob, nranks));
  if (done < 5) WHORL_TRY(attend<Choice>(oob, nranks));
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
    return {};
  };
  first.set(prepare());
  phases.lap("prepared");
  setup.recorder->creating("meeting the other ranks");
  auto peers = exchange(oob, nranks, first);
  phases.lap("peers");
  if (!peers.ok()) return peers.status();

  // Round 2: rank 0's decisions. Before anybody connects, all know that all are going to.
  SetupReport<Decisions> second;
  const auto prepare_links = [&]() -> Status {
    WHORL_TRY(make_membership(setup, *std::move(peers), identity, rank));
    WHORL_TRY(choose_transports(setup));
    if (rank != 0) return {};
    if (log_enabled(LogLevel::kInfo)) {
      for (const std::string& line : describe_choices(setup)) log(LogLevel::kInfo, line);
    }
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
    setup.recorder->creating("connecting to the other ranks");
    setup.membership->check_others = [&oob] { return oob.check(); };
    connected = connect_all(setup);
    setup.membership->check_others = nullptr;
  }
  phases.lap("connected");
  if (!connected.ok()) WHORL_TRY(oob.give_up(connected));
  setup.recorder->creating("waiting until the other ranks are connected");
  SetupReport<Nothing> third;
  third.set(connected);
  if (const auto all = exchange(oob, nranks, third); !all.ok()) {
    // This rank's own error is more precise than the report, whose text has a limit.
    return connected.ok() ? all.status() : connected;
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
