#include "tests/faults/matrix.h"

#include <fmt/core.h>
#include <fnmatch.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <stdexcept>

#include "base/hash.h"
#include "tests/support/shared_array.h"

namespace whorl::test {
namespace {

bool selected(const std::string& cell, const Selection& selection) {
  const bool matches =
      selection.patterns.empty() ||
      std::any_of(selection.patterns.begin(), selection.patterns.end(), [&](const auto& pattern) {
        return ::fnmatch(pattern.c_str(), cell.c_str(), 0) == 0;
      });
  if (!matches) return false;
  Hash hash;
  hash.mix(cell);
  constexpr int kDropped = 20; // the low bits of the hash of similar texts are similar
  return (hash.value() >> kDropped) % 100 < selection.percent;
}

/// Returns the selected cells, those of one set of processes together.
std::vector<std::vector<std::size_t>> choose(const Matrix& matrix, const Selection& selection) {
  std::vector<std::vector<std::size_t>> sets;
  std::size_t last = 0;
  for (std::size_t cell = 0; cell < matrix.cells().size(); ++cell) {
    if (!selected(matrix.cells()[cell], selection)) continue;
    if (sets.empty() || matrix.set_of(cell) != last) sets.emplace_back();
    last = matrix.set_of(cell);
    sets.back().push_back(cell);
  }
  return sets;
}

/// Runs all sets, `jobs` at the same time, each worker a process.
void run_sets(const Matrix& matrix, const std::vector<std::vector<std::size_t>>& sets,
              CellResult* results, unsigned jobs) {
  SharedArray<std::atomic<std::size_t>> next(1);
  std::fflush(nullptr);
  std::vector<pid_t> workers;
  for (unsigned job = 0; job < jobs; ++job) {
    const pid_t pid = ::fork();
    if (pid < 0) throw std::runtime_error("fork() failed");
    if (pid == 0) {
      for (std::size_t set = 0; (set = next[0].fetch_add(1)) < sets.size();) {
        matrix.run(sets[set], results);
      }
      std::fflush(nullptr);
      ::_exit(0);
    }
    workers.push_back(pid);
  }
  for (const pid_t worker : workers) ::waitpid(worker, nullptr, 0);
}

double percentile(const std::vector<double>& sorted, double part) {
  if (sorted.empty()) return 0;
  return sorted[static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1))];
}

/// Prints the outcome of a matrix. Returns the number of cells that failed.
std::size_t report(const Matrix& matrix, const std::vector<std::vector<std::size_t>>& sets,
                   const CellResult* results, double seconds) {
  std::vector<double> times;
  std::size_t cells = 0, failed = 0;
  for (const auto& set : sets) {
    for (const std::size_t cell : set) {
      const CellResult& result = results[cell];
      ++cells;
      if (result.ran) times.push_back(result.ms);
      if (result.ran && result.passed) continue;
      ++failed;
      fmt::print("FAILED {}\n  {}\n  again: ./run faults --cell '{}'\n", matrix.cells()[cell],
                 result.ran ? result.why.data() : "the processes ended before the cell",
                 matrix.cells()[cell]);
    }
  }
  std::sort(times.begin(), times.end());
  fmt::print("{:<10}{:>8}{:>8}{:>8}{:>10}{:>10}{:>10}{:>10}\n", "matrix", "cells", "passed",
             "failed", "p50 ms", "p99 ms", "max ms", "total s");
  fmt::print("{:<10}{:>8}{:>8}{:>8}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.1f}\n", matrix.name(), cells,
             cells - failed, failed, percentile(times, 0.5), percentile(times, 0.99),
             times.empty() ? 0.0 : times.back(), seconds);
  fmt::print("{}\n\n", matrix.measure());
  std::fflush(stdout);
  return failed;
}

} // namespace

void CellResult::set(std::string_view wrong, double longest_ms) {
  passed = wrong.empty();
  ms = longest_ms;
  const std::size_t kept = wrong.copy(why.data(), why.size() - 1);
  why[kept] = '\0';
  ran = true;
}

std::size_t run_matrices(std::span<const Matrix* const> matrices, const Selection& selection,
                         unsigned jobs) {
  std::size_t failed = 0, cells = 0;
  for (const Matrix* const matrix : matrices) {
    const auto sets = choose(*matrix, selection);
    if (sets.empty()) continue;
    cells += sets.size();
    SharedArray<CellResult> results(matrix->cells().size());
    const auto start = std::chrono::steady_clock::now();
    run_sets(*matrix, sets, results.data(), jobs);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    failed += report(*matrix, sets, results.data(), took.count());
  }
  if (cells == 0) throw std::invalid_argument("no cell has such a name; --list shows all");
  return failed;
}

void list_cells(std::span<const Matrix* const> matrices, const Selection& selection) {
  for (const Matrix* const matrix : matrices) {
    for (const std::string& cell : matrix->cells()) {
      if (selected(cell, selection)) fmt::print("{}\n", cell);
    }
  }
}

} // namespace whorl::test
