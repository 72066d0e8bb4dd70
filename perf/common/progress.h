// Display of how far a run is.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

namespace perf {

/// Display of the number of rows that are done, and of the time that the others may take, on
/// stderr: on a terminal below each row, elsewhere every ten seconds.
class Progress {
 public:
  /// Takes the sizes of all rows in bytes, in order.
  explicit Progress(std::vector<std::size_t> sizes);
  /// Shows that one more row is done. Called once for each row.
  void step();
  /// Clears the line of the terminal, so that other text may be printed.
  void clear() const;

  /// Returns the seconds that rows of `sizes` from `done` on may take, if the row before took
  /// `last_seconds`: as long as that row for each smaller row, and longer in proportion for larger
  /// ones.
  static double estimate(const std::vector<std::size_t>& sizes, std::size_t done,
                         double last_seconds);

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<std::size_t> sizes_;
  std::size_t done_ = 0;
  Clock::time_point row_began_ = Clock::now();
  Clock::time_point said_ = Clock::now();
};

} // namespace perf
