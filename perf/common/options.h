#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "perf/common/types.h"

namespace perf {

/// What happens to the buffers between two timed operations.
enum class Mode {
  kDirty, ///< every rank rewrites its input and reads its result; each operation timed by itself
  kWarm,  ///< nothing; operations back to back, one clock reading around all of them
  kCold,  ///< back to back on rotating buffers that together exceed the caches
};
/// Where buffers come from.
enum class Alloc { kPlain, kWhorl, kRegistered, kDevice };
/// Which of a collective's two forms is measured.
enum class Side { kBoth, kOutOfPlace, kInPlace };
/// How the ranks' times become one figure (`-a`).
enum class Average { kRank0 = 0, kMean = 1, kMin = 2, kMax = 3 };

/// The command line, checked. Sizes are in bytes of the larger side of the collective.
struct Options {
  std::size_t min_bytes = 8;
  std::size_t max_bytes = 64 << 20;
  std::size_t step_bytes = 0; ///< added from row to row; 0: multiply by step_factor
  double step_factor = 2;
  std::vector<std::size_t> sizes; ///< ascending; empty: from min_bytes to max_bytes
  int iterations = 20;
  int budget_ms = 0; ///< 0: `iterations`; else what takes this long, 3 to `iterations`
  int warmup = 5;
  int check_iterations = 1; ///< 0: results are not verified
  int aggregate = 1;        ///< operations issued in one group
  std::vector<Operator> operators{Operator::kSum};
  std::vector<DataType> types{XCCL(Float32)};
  int root = 0;  ///< -1: every rank in turn
  int ranks = 0; ///< in all, without a launcher; filled in by parse()
  bool ranks_given = false;
  int threads = 1;          ///< threads of each process
  int ranks_per_thread = 1; ///< ranks that one thread drives by group calls
  bool blocking = false;    ///< wait after every operation
  bool cpu_time = false;    ///< time until the calls returned, not until completion
  bool stream = false;      ///< operations on a stream, of the device if buffers are there
  int cores = 1;            ///< that this process may use
  bool unbound = false;     ///< leave the placement of forked processes to the system
  Average average = Average::kMean;
  Mode mode = Mode::kDirty;
  Side side = Side::kBoth;
  Alloc alloc = Alloc::kPlain;
  int skew = 0;      ///< of blocks that may differ in size, in percent
  int timeout_s = 0; ///< 0: none
  std::string json_file;
  std::string workload; ///< empty: a sweep over sizes

  /// Whether each forked process is bound to a core of its own.
  [[nodiscard]] bool binds() const {
    return !unbound && ranks_per_process() == 1 && ranks <= cores;
  }
  [[nodiscard]] int ranks_per_process() const { return threads * ranks_per_thread; }
};

/// A program that ends before measuring: text for stdout (code 0) or stderr.
struct Exit {
  int code;
  std::string text;
};

/// Parses the command line of the program `name`. A bad flag or value is one sentence and code 2.
/// `has_workloads`: whether --workload is offered, `uneven`: --skew; `cores`: the default for the
/// number of ranks.
std::variant<Options, Exit> parse(int argc, const char* const* argv, const std::string& name,
                                  bool has_workloads, int cores, bool uneven = false);

/// "8", "64K", "1.5M", "2G" (powers of 1024, upper or lower case, an optional B). False if it is
/// none of these or exceeds the address space.
bool parse_size(const std::string& text, std::size_t* bytes);

/// The sizes of a sweep, ascending and distinct.
std::vector<std::size_t> sweep_sizes(const Options& options);

const char* name_of(Mode mode);
const char* name_of(Alloc alloc);

} // namespace perf
