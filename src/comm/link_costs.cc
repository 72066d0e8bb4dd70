#include "comm/link_costs.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "base/params.h"
#include "comm/arrangement.h"
#include "comm/decisions.h"
#include "comm/level_costs.h"
#include "comm/setup_round.h"
#include "topology/text_file.h"

namespace whorl {
namespace {

// Times of a processor (docs/selection.md): to reduce a KiB instead of copying it, to copy a KiB,
// and to switch to the next rank of the same core.
constexpr double kReduceUsPerKib = 0.007, kCopyUsPerKib = 0.011, kHandOverUs = 1.25;

/// Time that a further level of switches adds to a round, there and back through two switches.
/// Assumed, not measured.
constexpr double kHopsUs = 0.5;

/// Returns the costs of the link between two ranks, by the PeerInfos.
Reach reach_of(const Setup& setup, const PeerInfo& one, const PeerInfo& other) {
  const int found = setup.first_reaching(one, other);
  if (found < 0) return {};
  const auto index = static_cast<std::size_t>(found);
  return setup.transports[index]->reach(one, other, index);
}

/// Returns the time of the switches between two ranks, beyond that of the switch above their hosts,
/// which the costs of transports contain.
double hops_us(Scope scope, const PeerInfo& rank) {
  if (scope == Scope::kPod) return kHopsUs;
  if (scope < Scope::kPod || rank.place.leaf == 0) return 0;
  return rank.place.pod == 0 ? kHopsUs : 2 * kHopsUs;
}

/// Returns the costs of a link. With more ranks than cores each of a core's ranks gets it in turn,
/// in every round.
Link link_of(const Reach& reach, double ranks_per_core, double hops_us) {
  const double hand_over_us = ranks_per_core > 1 ? kHandOverUs * ranks_per_core : 0;
  Link link{.alpha_us = reach.alpha_us + hand_over_us + hops_us,
            .overhead_us = reach.overhead_us,
            .beta_us_per_kib = 0,
            .send_us_per_kib = 0,
            .receive_us_per_kib = 0};
  if (reach.networked) {
    link.beta_us_per_kib = reach.beta_us_per_kib;
  } else {
    link.send_us_per_kib = link.receive_us_per_kib = reach.beta_us_per_kib;
  }
  return link;
}

/// Returns the larger one of each cost.
Link slower(const Link& a, const Link& b) {
  return {.alpha_us = std::max(a.alpha_us, b.alpha_us),
          .overhead_us = std::max(a.overhead_us, b.overhead_us),
          .beta_us_per_kib = std::max(a.beta_us_per_kib, b.beta_us_per_kib),
          .send_us_per_kib = std::max(a.send_us_per_kib, b.send_us_per_kib),
          .receive_us_per_kib = std::max(a.receive_us_per_kib, b.receive_us_per_kib)};
}

/// Returns the lowest of the known rates, in GB/s, at which the parts of a scope reach the rest of
/// the job; 0: none is known. The NIC does not limit ranks that are all on one machine.
double slowest_exit(const Membership& members, Scope scope) {
  const double RankPlace::*rate = scope == Scope::kHost   ? &RankPlace::nic_gb_per_s
                                  : scope == Scope::kLeaf ? &RankPlace::leaf_gb_per_s
                                  : scope == Scope::kPod  ? &RankPlace::pod_gb_per_s
                                                          : nullptr;
  const auto elsewhere = [&](const PeerInfo& info) {
    return info.machine_key != members.peers.front().machine_key;
  };
  if (rate == nullptr || std::none_of(members.peers.begin(), members.peers.end(), elsewhere)) {
    return 0;
  }
  double slowest = 0;
  for (const PeerInfo& info : members.peers) {
    const double known = info.place.*rate;
    if (known > 0 && (slowest == 0 || known < slowest)) slowest = known;
  }
  return slowest;
}

/// Returns ranks per core on the machine with most ranks; assumes that all machines have as many
/// cores as this one.
double ranks_per_core(const Membership& members) {
  const int most = members.most_ranks_sharing(&PeerInfo::machine_key);
  const auto cores = std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1.0, static_cast<double>(most) / static_cast<double>(cores));
}

/// Waiter that polls all peers for failures while this rank waits for one of them.
class SetupWaiter final : public Waiter {
 public:
  explicit SetupWaiter(const Setup& setup) : setup_(setup) {}
  void block(std::uint64_t max_ns) noexcept override {
    for (const auto& transport : setup_.transports) {
      if (transport != nullptr) transport->block(std::min<std::uint64_t>(max_ns, 100'000));
    }
  }
  void poll_failures(std::uint64_t waited_ns) noexcept override {
    for (const auto& transport : setup_.transports) {
      if (transport != nullptr) transport->poll_failures(waited_ns);
    }
  }

 private:
  const Setup& setup_;
};

/// Reads the file of costs that the user gives; without one it replaces nothing.
Result<CostFile> read_cost_file() {
  const std::string path = param_text(Param::kCostFile);
  if (path.empty()) return CostFile();
  const auto text = topology::read_text_file(path);
  if (!text.ok()) return text.status().with_context("WHORL_COST_FILE");
  auto file = CostFile::parse(*text, path);
  return file.ok() ? file : file.status().with_context("WHORL_COST_FILE");
}

/// Chooses algorithms by what all ranks have measured, and what the user's file says.
Result<Choice> choose_by(const Setup& setup, const std::vector<ProbeResult>& probes) {
  const auto file = read_cost_file();
  if (!file.ok()) return file.status();
  const int senders = setup.membership->most_ranks_sharing(&PeerInfo::host_key);
  LinkCosts costs = merge(setup.links, probes, senders);
  for (Level& level : costs.levels) file->apply(level);
  return choose(setup.shape, costs, setup.options);
}

/// Measures the links of this rank, while its partners do the same.
Result<ProbeResult> probe_links(const Setup& setup) {
  const Membership& members = *setup.membership;
  ProbeResult result;
  probe_processor(result);
  const WaitPolicy& policy = setup.policy;
  SetupWaiter waiter(setup);
  const bool crowded = ranks_per_core(members) > 1;
  const ProbePartners partners = probe_partners(members.peers, members.rank);
  for (const bool far : {false, true}) {
    const int peer = far ? partners.far : partners.near;
    if (peer < 0) continue;
    const auto index = static_cast<std::size_t>(setup.transport_of[static_cast<std::size_t>(peer)]);
    const ProbePeer link{
        .rank = peer,
        .endpoint = setup.transports[index]->endpoint(peer, 0),
        .networked = reach_of(setup, members.info(members.rank), members.info(peer)).networked,
        .crowded = crowded,
        .slot_bytes = members.slot_bytes};
    const auto measured = probe_link(link, policy, *members.comm_error, waiter);
    if (!measured.ok()) return measured.status();
    (far ? result.far : result.near) = *measured;
    if (!far && crowded) {
      result.turn_us = probe_turn(link, policy, *members.comm_error, waiter);
    }
  }
  return result;
}

} // namespace

Result<CostTable> estimate_links(const Setup& setup) {
  const Membership& members = *setup.membership;
  CostTable table;
  LinkCosts& common = table.common;
  common.gamma_us_per_kib = kReduceUsPerKib;
  common.copy_us_per_kib = kCopyUsPerKib;
  common.message_bytes = members.slot_bytes;
  common.slots = static_cast<std::size_t>(members.slots);
  common.ranks_per_core = ranks_per_core(members);
  std::array<std::optional<Link>, kScopes> links;
  const auto add = [&](int a, int b) {
    const PeerInfo& one = members.info(a);
    const PeerInfo& other = members.info(b);
    const Reach reach = reach_of(setup, one, other);
    if (!reach.reachable) return;
    const Scope scope = common_scope(one, other);
    std::optional<Link>& link = links.at(static_cast<std::size_t>(scope));
    const Link next = link_of(reach, common.ranks_per_core, hops_us(scope, one));
    link = link ? slower(*link, next) : next;
  };
  // Pairs of all scopes are among those of rank 0 and those of places that follow each other.
  const std::vector<int> order = arrange(members.peers).ranks(members.peers.size());
  for (std::size_t i = 1; i < order.size(); ++i) {
    add(order[0], order[i]);
    add(order[i - 1], order[i]);
  }
  const auto file = read_cost_file();
  if (!file.ok()) return file.status();
  for (std::size_t scope = 0; scope < kScopes; ++scope) {
    Level& level = table.scopes.at(scope);
    level.scope = static_cast<Scope>(scope);
    if (links.at(scope)) level.link = *links.at(scope);
    level.boundary_us_per_kib = us_per_kib(slowest_exit(members, level.scope));
    file->apply(level);
  }
  return table;
}

Status choose_by_measuring(Setup& setup, Oob& oob) {
  const Membership& members = *setup.membership;
  // Links are measured once all ranks are known to be connected: a rank that waited for the
  // messages of a rank that has given up would wait for long.
  SetupReport<ProbeResult> fourth;
  const Status measured = without_exceptions([&]() -> Status {
    const auto costs = probe_links(setup);
    if (costs.ok()) fourth.content = *costs;
    return costs.status();
  });
  fourth.set(measured);
  const auto probes = exchange(oob, members.nranks, fourth);
  WHORL_TRY(measured);
  if (!probes.ok()) return probes.status();

  SetupReport<Choice> fifth;
  if (members.rank == 0) {
    fifth.set(without_exceptions([&]() -> Status {
      const auto choice = choose_by(setup, *probes);
      if (choice.ok()) fifth.content = *choice;
      return choice.status();
    }));
  }
  const auto choices = exchange(oob, members.nranks, fifth);
  if (!choices.ok()) return choices.status();
  if (!sane(choices->front().selector, choices->front().links)) {
    return Status::error(Code::kInternalError, "rank 0 sent a malformed table of algorithms");
  }
  setup.selector = choices->front().selector;
  setup.links = choices->front().links;
  return {};
}

} // namespace whorl
