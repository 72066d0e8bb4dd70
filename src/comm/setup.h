#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "algorithms/shape.h"
#include "base/status.h"
#include "base/wait.h"
#include "bootstrap/bootstrap.h"
#include "comm/options.h"
#include "exec/trace.h"
#include "transports/transport.h"
#include "tuning/selector.h"

namespace whorl {

/// A communicator that is connected, ready for an engine.
struct Setup {
  Options options;
  std::shared_ptr<Verdict> verdict;
  std::unique_ptr<Membership> membership;
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<int> transport_of; ///< for each rank an index into transports; −1 for this rank
  Shape shape;
  Selector selector;
  LinkCosts links; ///< that the selector was made from
  WaitPolicy policy{};
  bool verify = false;
  bool probed = false; ///< links were measured, and the selector was made by that
  std::uint64_t workspace_bytes = UINT64_MAX; ///< see MemorySizes
  std::unique_ptr<Trace> trace;               ///< null: nothing is recorded
  std::uint64_t memory_budget = 0;            ///< the smallest of all ranks; 0: no limit

  /// The endpoints by [channel][peer]; null for this rank.
  std::vector<std::vector<Endpoint*>> endpoints() const;
  /// Operations from this size on bypass the caches with what they write.
  std::size_t stream_bytes() const;
  /// Memory that all ranks of this host share; empty if there is none.
  std::span<std::byte> board() const noexcept;
  /// By which ranks of other processes on this host get descriptors; null if there is none.
  FdMailbox* mailbox() const noexcept;
  /// Blocks until something may have come from any peer.
  void nap(std::uint64_t max_ns) const noexcept;
  /// A number of all that decides in which order an operation on host memory combines its operands:
  /// version, algorithms, shape and slots. Runs with the same number compute the same bits.
  std::uint64_t digest() const noexcept;
};

/// Meets the other ranks through `oob` and connects to them: cards are exchanged, each pair takes
/// the best transport that reaches it, rank 0's decisions go to everyone, every rank learns whether
/// every other is connected. Where links are to be measured, two rounds more follow, in which they
/// are, and rank 0's choice of algorithms by that goes to everyone. The error of any rank becomes
/// everyone's.
/// `identity` is alike on all ranks.
/// `verdict` becomes the communicator's; raised before, it ends the set-up.
Result<Setup> set_up(Oob& oob, int nranks, int rank, const Identity& identity,
                     const Options& options, std::shared_ptr<Verdict> verdict);

/// Takes part in the rounds of a set_up() of other ranks from round `done` on, with nothing to say.
/// Where one all-gather serves several set-ups (a split), ranks without a part, and those that have
/// given up early, owe this to the others. `probes`: whether any of them measures links.
Status sit_out(Oob& oob, int nranks, int done, bool probes);

/// What set_up() would decide on rank 0 of `nranks` ranks, processes like this one that are spread
/// evenly over `nhosts` hosts like this one. Nothing is connected or measured. The error says what
/// is wrong with the options.
Result<Setup> rehearse(const Options& options, int nranks, int nhosts);

} // namespace whorl
