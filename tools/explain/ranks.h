#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "whorl/whorl.h"

namespace whorl::explain {

struct Meeting;

/// Interface of a rank for the function that run_ranks() calls in each process. A call of the
/// library that fails ends the process, and so the whole measurement, with its error.
class RankProcess {
 public:
  RankProcess(Meeting& meeting, int rank, int nranks)
      : meeting_(meeting), rank_(rank), nranks_(nranks) {}

  int rank() const noexcept { return rank_; }
  int nranks() const noexcept { return nranks_; }
  /// Waits until all ranks have called meet(). The wait blocks, so it takes no core from other
  /// ranks.
  void meet();
  void check(whorlResult_t result, const char* what);
  /// Creates a communicator of all ranks, which all call create(). `algorithm` has the form of
  /// WHORL_ALGO.
  whorlComm_t create(const std::string& algorithm);
  /// Returns the distance of the first two processors, in ns for an exchange of flags; 0 if there
  /// is only one, or only one rank. All ranks call exchange_ns(), and none returns before the
  /// measurement is over.
  double exchange_ns();

 private:
  Meeting& meeting_;
  int rank_, nranks_;
};

/// Forks `nranks` processes, each bound to a core of its own where there are enough, which call
/// `body` with the same `bytes` of shared memory, initially zero, and calls `finish` with that
/// memory when all have succeeded. The calling process must not have used the library before and
/// must have no other threads.
Status run_ranks(int nranks, std::size_t bytes,
                 const std::function<void(RankProcess&, void* shared)>& body,
                 const std::function<void(void* shared)>& finish);

/// Returns the value below which the fraction `q` of the values lies.
double quantile(std::vector<double> values, double q);

} // namespace whorl::explain
