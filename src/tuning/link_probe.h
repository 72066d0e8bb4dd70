#pragma once

#include <vector>

#include "algorithms/cost_model.h"
#include "base/membership.h"
#include "base/status.h"
#include "base/wait.h"
#include "transports/endpoint.h"

namespace whorl {

/// What one rank has measured; 0 where it has not. Plain bytes: it is sent as it is.
struct ProbeResult {
  /// Of the link to one peer.
  struct Peer {
    double alpha_us = 0, send_us_per_kib = 0, receive_us_per_kib = 0, beta_us_per_kib = 0;
  };
  Peer near, far; ///< of the same host, of another host
  double gamma_us_per_kib = 0, copy_us_per_kib = 0;
  double turn_us = 0; ///< until all ranks of a core have had it in turn; with more ranks than cores
};

/// Whom a rank probes with; −1: nobody. Both ranks of a pair come to the same answer.
struct ProbePartners {
  int near = -1; ///< the ranks of a host pair up in order; an odd one stays alone
  int far = -1;  ///< as many places on in the next host of a pair of hosts, if there is a rank
};
ProbePartners probe_partners(const std::vector<RankCard>& cards, int rank);

/// A partner as the probe sees it.
struct ProbePeer {
  int rank = -1;
  Endpoint* endpoint = nullptr;
  bool networked = false; ///< the kernel moves the data: processor time cannot be told from passage
  bool crowded = false;   ///< ranks share cores: exchanges show who runs when, and are not counted
  std::size_t slot_bytes = 0; ///< the largest message
};

/// Measures the link to a connected peer, which does the same at the same time: exchanges of empty
/// messages, then of larger ones. All messages have been received when it returns. The error names
/// the peer.
Result<ProbeResult::Peer> probe_link(const ProbePeer& peer, const WaitPolicy& policy,
                                     const Verdict& verdict, Napper& napper);
/// Measures how long a wait takes in which this rank lets others run that wait, too: the time in
/// which the ranks of a core have it in turn. They do the same at the same time.
double probe_turn(const ProbePeer& peer, const WaitPolicy& policy, const Verdict& verdict,
                  Napper& napper);
/// Measures what copying and reducing cost this process; once, then the result is kept.
void probe_processor(ProbeResult& result);

/// Replaces in `estimates` what has been measured by the medians of `results`, of sending and
/// receiving by the means. Where there are turns, they are what a round in shared memory costs, and
/// come on top of one over a network.
LinkCosts merge(const LinkCosts& estimates, const std::vector<ProbeResult>& results);

} // namespace whorl
