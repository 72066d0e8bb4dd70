// Flags of the perf programs, as their command lines spell them.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "perf/common/nccl_tests.h"
#include "perf/common/options.h"

namespace perf {

inline constexpr const char* kDescription =
    "Measures and verifies one collective of whorl. Without a launcher (mpirun, torchrun, srun) "
    "the program "
    "starts its ranks itself.";

/// Values of flags that parse() checks and turns into Options.
struct Flags {
  std::string min_bytes = "8", max_bytes, step_bytes, op = "sum", type = "float";
  std::string mode = "dirty", alloc = "plain", root = "0", side = "both";
  std::vector<std::string> sizes;
  int average = 1, blocking = 0, cpu_time = 0, timestamps = 0, memory_report = 0;
  std::optional<double> factor;
  NcclTestsFlags nccl_tests;
};

/// Flags that only some of the programs offer.
struct Offered {
  bool workloads = false; ///< --workload
  bool uneven = false;    ///< --skew
};

/// Adds the flags of a perf program to `app`, which writes to `options` and `texts`.
void add_flags(CLI::App& app, Options& options, Flags& texts, Offered offered);

/// Returns the names of operators or datatypes for a sentence: "sum, prod, ..., all".
std::string operator_names();
std::string type_names();

} // namespace perf
