#pragma once

#include <cstddef>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/cost_model.h"
#include "base/status.h"

namespace whorl::explain {

/// What to measure with ranks that are processes of this host.
struct Plan {
  Collective collective = Collective::kAllReduce;
  int nranks = 2;
  std::vector<const Algorithm*> algorithms; ///< all support the shape
  std::vector<std::size_t> sizes;           ///< bytes of the larger side
  int rounds = 7;                           ///< of all algorithms one after the other
};

/// One round of all algorithms at one size.
struct Round {
  double exchange_ns[2];  ///< the distance of the cores before and after it; 0: unknown
  std::vector<double> us; ///< by algorithm: the time of the slowest rank
  double again_us;        ///< of the library's pick, in another communicator
};

/// What came of it.
struct Measurement {
  LinkCosts links;                        ///< that the communicator chose by
  bool probed = false;                    ///< it has measured them
  std::uint64_t digest = 0;               ///< see Setup
  double creation_ms = 0;                 ///< of the communicator that chooses for itself
  std::vector<const Algorithm*> picks;    ///< of the library, by size
  std::vector<std::vector<Round>> rounds; ///< [size][round]
};

/// The first of `algorithms` with the same schedules as `algorithm` on all ranks: with two ranks
/// some algorithms become one.
const Algorithm* same_schedules(const Algorithm* algorithm,
                                const std::vector<const Algorithm*>& algorithms,
                                const Shape& shape);

/// Starts the ranks (see run_ranks()) and measures. Between two timed operations every rank
/// rewrites its input and reads its result. Each algorithm has a communicator of its own, each
/// pick two: the difference between them is what one measurement can tell from another.
Result<Measurement> measure(const Plan& plan);

/// What many communicators of the same ranks chose, and by what.
struct Scatter {
  std::vector<LinkCosts> links;       ///< by communicator
  std::vector<std::uint64_t> digests; ///< likewise, see Setup
  /// [collective][class of sizes, see Selector][communicator]
  std::vector<std::vector<std::vector<const Algorithm*>>> picks;
};
/// Starts the ranks and has them make communicators, one after the other; `fresh`: new processes
/// for each.
Result<Scatter> measure_scatter(int nranks, int communicators, bool fresh);

} // namespace whorl::explain
