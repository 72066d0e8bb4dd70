#pragma once

#include <vector>

#include "algorithms/cost_model.h"
#include "base/membership.h"
#include "base/status.h"
#include "base/wait.h"
#include "transports/endpoint.h"

namespace whorl {

/// Measurements of one rank; 0 where it has not measured. Plain bytes, sent as they are.
struct ProbeResult {
  /// Measurements of the link to one peer.
  struct Peer {
    double alpha_us = 0, send_us_per_kib = 0, receive_us_per_kib = 0, beta_us_per_kib = 0;
  };
  Peer near, far; ///< peers on the same host, on another host
  double gamma_us_per_kib = 0, copy_us_per_kib = 0;
  /// Time until all ranks of a core have had it in turn; with more ranks than cores.
  double turn_us = 0;
};

/// Ranks that a rank probes with; −1: none. Both ranks of a pair compute the same pair.
struct ProbePartners {
  int near = -1; ///< partner on the same host: its ranks pair up in order; an odd one stays alone
  int far = -1;  ///< partner at the same place on the other host of a pair, if there is one
};
ProbePartners probe_partners(const std::vector<PeerInfo>& peers, int rank);

/// Partner of a probe.
struct ProbePeer {
  int rank = -1;
  Endpoint* endpoint = nullptr;
  /// Whether the kernel moves the data: then processor time cannot be separated from passage.
  bool networked = false;
  /// Whether ranks share cores: exchanges show the order of running, and do not count.
  bool crowded = false;
  std::size_t slot_bytes = 0; ///< bytes of the largest message
};

/// Measures the link to a connected peer, which does the same at the same time: exchanges of empty
/// messages, then of larger ones. Returns when all messages have been received. The error names the
/// peer.
Result<ProbeResult::Peer> probe_link(const ProbePeer& peer, const WaitPolicy& policy,
                                     const CommError& comm_error, Waiter& waiter);
/// Measures how long a wait takes in which this rank yields to the other ranks of its core, which
/// make the same call at the same time: the time in which each rank of the core has had its turn.
double probe_turn(const ProbePeer& peer, const WaitPolicy& policy, const CommError& comm_error,
                  Waiter& waiter);
/// Measures the costs of copying and reducing in this process; once, then reuses the result.
void probe_processor(ProbeResult& result);

/// Replaces values in `estimates` by the medians of those measured in `results`, for sending and
/// receiving by the means: near peers stand for the levels within a host, far ones for those above.
/// Where there are turns, they are the cost of a round in shared memory, and are added to that of a
/// round over a network. `senders` is the number of ranks of a host: as all of them have measured
/// at the same time, a KiB crosses the boundary of a host in so much less time than passed for
/// each.
LinkCosts merge(const LinkCosts& estimates, const std::vector<ProbeResult>& results,
                double senders);

} // namespace whorl
