#pragma once

#include <cstddef>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/cost_model.h"
#include "base/status.h"

namespace whorl::explain {

/// Plan of a measurement with ranks that are processes of this host.
struct Plan {
  Collective collective = Collective::kAllReduce;
  int nranks = 2;
  std::vector<const Algorithm*> algorithms; ///< candidates, which all support the shape
  std::vector<std::size_t> sizes;           ///< sizes of the larger side, in bytes
  int rounds = 7;                           ///< number of rounds of all algorithms
};

/// Times of one round of all algorithms at one size.
struct Round {
  double exchange_ns[2];  ///< distance of the cores before and after the round; 0: unknown
  std::vector<double> us; ///< times of the slowest rank by algorithm
  double again_us;        ///< time of the library's pick in another communicator
};

/// Result of a measurement.
struct Measurement {
  LinkCosts links;                        ///< costs by which the communicator chose
  bool probed = false;                    ///< true: the communicator has measured the costs
  std::uint64_t digest = 0;               ///< digest of choices, see Setup
  std::vector<const Algorithm*> picks;    ///< the library's picks by size
  std::vector<std::vector<Round>> rounds; ///< [size][round]
};

/// Returns the first of `algorithms` with the same schedules as `algorithm` on all ranks, or
/// `algorithm`: with two ranks some algorithms coincide.
const Algorithm* same_schedules(const Algorithm* algorithm,
                                const std::vector<const Algorithm*>& algorithms,
                                const Shape& shape);

/// Starts the ranks (see run_ranks()) and measures. Between two timed operations every rank
/// rewrites its input and reads its result. Each algorithm has a communicator of its own, and each
/// pick a second one: their difference is the noise of the measurement.
Result<Measurement> measure(const Plan& plan);

/// Choices of many communicators of the same ranks, and the costs by which they chose.
struct Scatter {
  std::vector<LinkCosts> links;       ///< costs by communicator
  std::vector<std::uint64_t> digests; ///< digests by communicator, see Setup
  /// Picks by [collective][class of sizes, see Selector][communicator].
  std::vector<std::vector<std::vector<const Algorithm*>>> picks;
};
/// Starts ranks that make communicators, one after the other; with `fresh`, each in new processes.
Result<Scatter> measure_scatter(int nranks, int communicators, bool fresh);

} // namespace whorl::explain
