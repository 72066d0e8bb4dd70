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

/// What came of it. A time is that of the slowest rank, the median of all rounds.
struct Measurement {
  LinkCosts links;                     ///< that the communicator has measured
  double creation_ms = 0;              ///< of the communicator that chooses for itself
  std::vector<std::vector<double>> us; ///< [size][algorithm]
  std::vector<const Algorithm*> picks; ///< of the library, by size
  std::vector<double>
      again_us; ///< the picks once more, in the communicator that chooses for itself
  std::vector<std::vector<double>> spread; ///< [size][algorithm] quartiles' distance / median
};

/// Starts the ranks, each on a core of its own where there are enough, and measures. Between two
/// timed operations every rank rewrites its input and reads its result. The process must not have
/// used the library before and has no other threads.
Result<Measurement> measure(const Plan& plan);

} // namespace whorl::explain
