#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "whorl/whorl.h"

namespace whorl::explain {

struct Meeting;

/// A rank as the function sees it that run_ranks() calls in each process. A call of the library
/// that fails ends the process, and so the whole measurement, with its error.
class RankProcess {
 public:
  RankProcess(Meeting& meeting, int rank, int nranks)
      : meeting_(meeting), rank_(rank), nranks_(nranks) {}

  int rank() const noexcept { return rank_; }
  int nranks() const noexcept { return nranks_; }
  /// Returns when all ranks have called it. Who waits blocks, and takes no core from the others.
  void meet();
  void check(whorlResult_t result, const char* what);
  /// A communicator of all ranks, which call it together. `algorithm` as in WHORL_ALGO.
  whorlComm_t create(const std::string& algorithm);
  /// How far the first two processors are apart, in ns for an exchange of flags; 0 where there is
  /// only one, or only one rank. All ranks call it together; none returns before it is over.
  double exchange_ns();

 private:
  Meeting& meeting_;
  int rank_, nranks_;
};

/// Forks `nranks` processes, each bound to a core of its own where there are enough, lets each call
/// `body` with the same `bytes` of shared memory, which are zero at first, and calls `finish` with
/// it when all have ended well. The process must not have used the library before and has no other
/// threads.
Status run_ranks(int nranks, std::size_t bytes,
                 const std::function<void(RankProcess&, void* shared)>& body,
                 const std::function<void(void* shared)>& finish);

/// The value below which a part `q` of the values lies.
double quantile(std::vector<double> values, double q);

} // namespace whorl::explain
