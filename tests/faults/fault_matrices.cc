// Program that runs the matrices of faults: `./run faults`.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <exception>

#include "tests/faults/kill_matrix.h"
#include "tests/faults/mismatch_matrix.h"

int main(int argc, char** argv) {
  using namespace whorl::test;
  CLI::App app(
      "Runs faults × points × operations × transports, and says for each cell whether all "
      "ranks got the right error.",
      "faults");
  Selection selection;
  bool list = false;
  auto jobs = static_cast<unsigned>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  app.add_option("--cell", selection.patterns,
                 "names of cells, or globs such as 'kill/tcp/*/stop/*'; all if none is given");
  app.add_option("--percent", selection.percent, "part of the cells, the same in each run")
      ->check(CLI::Range(1, 100));
  app.add_option("--jobs", jobs, "cells that run at the same time; as many as cores")
      ->check(CLI::Range(1, 64));
  app.add_flag("--list", list, "print the names of the cells, and run none");
  CLI11_PARSE(app, argc, argv);
  try {
    const KillMatrix kill;
    const MismatchMatrix mismatch;
    const std::array<const Matrix*, 2> matrices{&kill, &mismatch};
    if (list) {
      list_cells(matrices, selection);
      return 0;
    }
    return run_matrices(matrices, selection, jobs) == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "faults: {}\n", error.what());
    return 2;
  }
}
