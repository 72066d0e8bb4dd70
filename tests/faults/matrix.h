#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace whorl::test {

/// Outcome of one cell, in memory that processes share.
struct CellResult {
  bool ran = false;
  bool passed = false;
  double ms = 0; ///< longest time from the fault, or the call, to the error of any rank
  std::array<char, 1200> why{}; ///< what went wrong, zero-terminated

  /// Enters the outcome: passed if `wrong` is empty.
  void set(std::string_view wrong, double longest_ms);
};

/// Cells that are combinations of a few fields, each with its own expectation.
class Matrix {
 public:
  virtual ~Matrix() = default;
  virtual std::string_view name() const = 0;
  /// Returns the sentence that says what the time of a cell measures, and its limit.
  virtual std::string_view measure() const = 0;
  /// Returns the names of all cells: "MATRIX/FIELD/…".
  virtual const std::vector<std::string>& cells() const = 0;
  /// Returns the number of the set of processes that runs a cell. Cells of one set follow each
  /// other.
  virtual std::size_t set_of(std::size_t cell) const = 0;
  /// Runs cells of one set, in a process that has not used whorl and has no threads.
  virtual void run(std::span<const std::size_t> cells, CellResult* results) const = 0;
};

/// Choice of cells.
struct Selection {
  std::vector<std::string> patterns; ///< globs, of which a name has to match one; empty: all
  unsigned percent = 100;            ///< part of the cells that is run, the same in each run
};

/// Runs the selected cells in `jobs` processes at the same time, and prints a table, with the cells
/// that failed. Returns the number of these.
std::size_t run_matrices(std::span<const Matrix* const> matrices, const Selection& selection,
                         unsigned jobs);
/// Prints the names of the selected cells.
void list_cells(std::span<const Matrix* const> matrices, const Selection& selection);

} // namespace whorl::test
