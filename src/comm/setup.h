#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/shape.h"
#include "base/status.h"
#include "base/wait.h"
#include "bootstrap/bootstrap.h"
#include "comm/options.h"
#include "comm/profiler.h"
#include "exec/trace.h"
#include "monitor/recorder.h"
#include "node/node.h"
#include "transports/transport.h"
#include "tuning/selector.h"

namespace whorl {

/// A communicator that is connected, ready for an engine.
struct Setup {
  Options options;
  std::shared_ptr<CommError> comm_error;
  std::unique_ptr<Membership> membership;
  std::shared_ptr<Node> node =
      std::make_shared<Node>(); ///< objects that the ranks of this host share
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<int> transport_of; ///< index into `transports` for each rank; −1 for this rank
  Shape shape;
  Selector selector;
  LinkCosts links; ///< costs that the selector was made from
  WaitPolicy policy{};
  std::uint64_t patience_ns = 0;               ///< patience of the progress thread, see TaskQueue
  bool probed = false;                         ///< true: the selector was made from measured links
  std::uint64_t workspace_bytes = UINT64_MAX;  ///< limit of workspaces, see MemorySizes
  std::unique_ptr<Trace> trace;                ///< null: no trace is written
  std::unique_ptr<Profiler> profiler;          ///< null: there is no plug-in
  std::unique_ptr<monitor::Recorder> recorder; ///< recorder of the last operations

  /// Returns the index of the first transport by which two ranks reach each other, or −1.
  /// Transports that have been closed count as not there.
  int first_reaching(const PeerInfo& one, const PeerInfo& other) const;
  /// Returns the name of the transport that has been chosen for a rank, a literal; empty for this
  /// rank.
  std::string_view transport_name(int peer) const noexcept;
  /// Returns the endpoints by [channel][peer]; null for this rank.
  std::vector<std::vector<Endpoint*>> endpoints() const;
  /// Returns the size from which on operations write their results past the caches.
  std::size_t nontemporal_bytes() const;
  /// Returns whether operations in one direction are divided into several messages: where all ranks
  /// are on one host, with a processor each. The same on all ranks, and however they are bound:
  /// where messages end may decide in which order an operation combines its operands.
  bool divides_one_way() const noexcept;
  /// Blocks until something may have come from any peer.
  void block(std::uint64_t max_ns) const noexcept;
  /// Returns a hash of all that decides in which order an operation on host memory combines its
  /// operands: version, algorithms, shape and slots. Runs with the same hash compute the same bits.
  std::uint64_t digest() const noexcept;
  /// Returns a line about where the ranks are, with digests of the topology and of choices.
  std::string describe() const;
};

/// Meets the other ranks through `oob` and connects to them: PeerInfos are exchanged, each pair
/// takes the best transport that reaches it, rank 0's decisions go to all ranks, and every rank
/// learns whether every other is connected. Where links are to be measured, two more rounds do that
/// and distribute the algorithms that rank 0 chooses from the measurements. The error of any rank
/// becomes the error of all. `identity` is the same on all ranks. `comm_error` becomes the
/// communicator's; an error that is set in it ends the set-up.
Result<Setup> set_up(Oob& oob, int nranks, int rank, const Identity& identity,
                     const Options& options, std::shared_ptr<CommError> comm_error);

/// Takes part in the rounds of a set_up() of other ranks from round `done` on, with reports that
/// are empty but for `why`, the failure of this rank, if any. Needed where one all-gather serves
/// several set-ups (a split): by ranks without a new communicator and by ranks that have failed
/// early, since the other ranks wait for their part. `probes`: whether any of the set-ups measures
/// links.
Status attend_remaining_rounds(Oob& oob, int nranks, int done, bool probes, const Status& why);

/// Hosts of a rehearsal.
struct RehearsedHosts {
  std::vector<int> ranks;   ///< number of ranks of each host, at least one
  bool one_machine = false; ///< whether the hosts are parts of one machine, such as containers
};
/// Computes what set_up() would decide on rank 0 of processes like this one, on hosts like this
/// one. Connects and measures nothing. The error says what is wrong with the options.
Result<Setup> rehearse(const Options& options, const RehearsedHosts& hosts);

} // namespace whorl
