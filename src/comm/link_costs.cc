#include "comm/link_costs.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "comm/decisions.h"
#include "comm/setup_round.h"

namespace whorl {
namespace {

// Times of a processor (docs/selection.md): to reduce a KiB instead of copying it, to copy a KiB,
// and to switch to the next rank of the same core.
constexpr double kReduceUsPerKib = 0.007, kCopyUsPerKib = 0.011, kHandOverUs = 1.25;

/// Returns the costs of the link to a peer, by the PeerInfos.
Reach reach_of(const Setup& setup, int peer) {
  const auto index = static_cast<std::size_t>(setup.transport_of[static_cast<std::size_t>(peer)]);
  const Membership& members = *setup.membership;
  return setup.transports[index]->reach(members.peers[static_cast<std::size_t>(members.rank)],
                                        members.peers[static_cast<std::size_t>(peer)], index);
}

/// Returns ranks per core on the machine with most ranks; assumes that all machines have as many
/// cores as this one.
double ranks_per_core(const Membership& members) {
  std::map<std::uint64_t, int> ranks;
  int most = 1;
  for (const PeerInfo& info : members.peers) most = std::max(most, ++ranks[info.machine_key]);
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
    const ProbePeer link{.rank = peer,
                         .endpoint = setup.transports[index]->endpoint(peer, 0),
                         .networked = reach_of(setup, peer).networked,
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

LinkCosts estimate_links(const Setup& setup) {
  const Membership& members = *setup.membership;
  const std::uint64_t host = members.peers[static_cast<std::size_t>(members.rank)].host_key;
  LinkCosts costs;
  costs.gamma_us_per_kib = kReduceUsPerKib;
  costs.copy_us_per_kib = kCopyUsPerKib;
  costs.message_bytes = members.slot_bytes;
  costs.slots = static_cast<std::size_t>(members.slots);
  costs.ranks_per_core = ranks_per_core(members);
  // With more ranks than cores each of a core's ranks gets it in turn, in every round.
  const double hand_over_us = costs.ranks_per_core > 1 ? kHandOverUs * costs.ranks_per_core : 0;
  constexpr Link kNothing{.alpha_us = 0,
                          .overhead_us = 0,
                          .beta_us_per_kib = 0,
                          .send_us_per_kib = 0,
                          .receive_us_per_kib = 0};
  Link all = kNothing, near = kNothing;
  const auto raise_to = [&](Link& slowest, const Reach& link) {
    slowest.alpha_us = std::max(slowest.alpha_us, link.alpha_us + hand_over_us);
    slowest.overhead_us = std::max(slowest.overhead_us, link.overhead_us);
    double& beta = link.networked ? slowest.beta_us_per_kib : slowest.send_us_per_kib;
    beta = std::max(beta, link.beta_us_per_kib);
    slowest.receive_us_per_kib = slowest.send_us_per_kib;
  };
  for (int peer = 0; peer < members.nranks; ++peer) {
    if (setup.transport_of[static_cast<std::size_t>(peer)] < 0) continue;
    const Reach link = reach_of(setup, peer);
    raise_to(all, link);
    if (members.peers[static_cast<std::size_t>(peer)].host_key == host) raise_to(near, link);
  }
  if (all != kNothing) costs.link = all;
  if (near != kNothing) costs.inner = near;
  return costs;
}

Status choose_by_measuring(Setup& setup, Oob& oob) {
  const Membership& members = *setup.membership;
  // Links are measured once all ranks are known to be connected: a rank that waited for the
  // messages of a rank that has given up would wait for long.
  SetupReport<ProbeResult> fourth;
  const auto costs = probe_links(setup);
  if (costs.ok()) fourth.content = *costs;
  fourth.set(costs.status());
  const auto probes = exchange(oob, members.nranks, fourth);
  if (!costs.ok()) return costs.status();
  if (!probes.ok()) return probes.status();

  SetupReport<Choice> fifth;
  if (members.rank == 0) {
    const auto choice = choose(setup.shape, merge(setup.links, *probes), setup.options);
    fifth.set(choice.status());
    if (choice.ok()) fifth.content = *choice;
  }
  const auto choices = exchange(oob, members.nranks, fifth);
  if (!choices.ok()) return choices.status();
  if (!choices->front().selector.valid()) {
    return Status::error(Code::kInternalError, "rank 0 sent a malformed table of algorithms");
  }
  setup.selector = choices->front().selector;
  setup.links = choices->front().links;
  return {};
}

} // namespace whorl
