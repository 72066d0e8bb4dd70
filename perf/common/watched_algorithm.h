// The algorithm that the library takes for an operation, as it tells profilers.
#pragma once

#include <string>

namespace perf {

/// Makes the library tell this program of its operations, when it is to. Called before the first
/// communicator is made; does nothing if the user has a profiler.
void offer_profiler();

/// Period in which the library tells of the operations of this process.
class WatchedAlgorithm {
 public:
  WatchedAlgorithm();
  ~WatchedAlgorithm();
  WatchedAlgorithm(const WatchedAlgorithm&) = delete;
  WatchedAlgorithm& operator=(const WatchedAlgorithm&) = delete;
  /// Returns the algorithm of the last collective of the period; empty if there was none, or the
  /// library does not tell.
  [[nodiscard]] std::string name() const;
};

} // namespace perf
