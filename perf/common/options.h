#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "perf/common/types.h"

namespace perf {

/// Treatment of the buffers between two timed operations.
enum class Mode {
  kDirty,  ///< every rank rewrites its input and reads its result; each operation timed by itself
  kMoving, ///< treatment of kDirty, on buffers that are allocated and freed for each operation
  kWarm,   ///< no treatment: operations back to back, one clock reading around all of them
  kCold,   ///< operations back to back on rotating buffers that together exceed the caches
};
/// Origin of the buffers.
enum class Alloc { kPlain, kWhorl, kRegistered, kDevice };
/// Forms of a collective that are measured.
enum class Side { kBoth, kOutOfPlace, kInPlace };
/// Rule that makes one figure of the ranks' times (`-a`).
enum class Average { kRank0 = 0, kMean = 1, kMin = 2, kMax = 3 };

/// Checked command line. Sizes are in bytes of the collective's larger side.
struct Options {
  std::size_t min_bytes = 8;        ///< smallest size, also of `sizes`
  std::size_t max_bytes = 64 << 20; ///< greatest size, also of `sizes`
  std::size_t step_bytes = 0;       ///< bytes added from row to row; 0: multiply by step_factor
  double step_factor = 2;
  std::vector<std::size_t> sizes; ///< sizes in ascending order; empty: from min_bytes to max_bytes
  int cycles = 1;                 ///< number of measurements of all sizes; 0: no end
  int iterations = 20;
  int budget_ms = 0; ///< time for 3 to `iterations` operations; 0: all `iterations`
  int warmup = 5;
  int check_iterations = 1; ///< iterations of verification; 0: results are not verified
  int aggregate = 1;        ///< operations issued in one group
  std::vector<Operator> operators{Operator::kSum};
  std::vector<DataType> types{XCCL(Float32)};
  int root = 0;  ///< root; −1: every rank in turn
  int ranks = 0; ///< number of all ranks without a launcher; filled in by parse()
  bool ranks_given = false;
  int threads = 1;          ///< threads of each process
  int ranks_per_thread = 1; ///< ranks that one thread drives by group calls
  bool blocking = false;    ///< true: wait after every operation
  bool cpu_time = false;    ///< true: time until the calls returned, not until completion
  bool stream = false;      ///< true: operations on a stream, of the device with Alloc::kDevice
  double compute_us = 0;    ///< computing after each call, within its time
  int cores = 1;            ///< number of cores that this process may use
  bool percentiles = false; ///< true: print the percentiles of each row's times
  bool together = false;    ///< true: operations begin on all ranks at the same moment
  bool unbound = false;     ///< true: leave the placement of forked processes to the system
  Average average = Average::kMean;
  Mode mode = Mode::kDirty;
  Side side = Side::kBoth;
  Alloc alloc = Alloc::kPlain;
  int first_element = 0;            ///< number of elements between the start of a page and a buffer
  int skew = 0;                     ///< skew of blocks that may differ in size, in percent
  int timeout_s = 0;                ///< limit of the whole run in seconds; 0: none
  bool timestamps = false;          ///< true: end each row with date and time
  bool memory_report = false;       ///< true: print the memory of communicators and buffers
  std::vector<std::string> notes;   ///< sentences for the header, about flags without an effect
  std::vector<std::string> command; ///< words of the command line
  std::string json_file;
  std::string plot_file;
  std::string workload; ///< model whose training step is replayed; empty: a sweep over sizes

  /// Returns whether each forked process is bound to a core of its own.
  [[nodiscard]] bool binds() const {
    return !unbound && ranks_per_process() == 1 && ranks <= cores;
  }
  [[nodiscard]] int ranks_per_process() const { return threads * ranks_per_thread; }
};

/// Exit status and output of a program that ends before measuring: text for stdout (code 0) or
/// stderr.
struct Exit {
  int code;
  std::string text;
};

/// Parses the command line of the program `name`. A bad flag or value gives one sentence and code
/// 2. `has_workloads` and `uneven` say whether --workload and --skew are offered; `cores` is the
/// default for the number of ranks.
std::variant<Options, Exit> parse(int argc, const char* const* argv, const std::string& name,
                                  bool has_workloads, int cores, bool uneven = false);

/// Parses "8", "64K", "1.5M" or "2G" (powers of 1024, upper or lower case, an optional B). Returns
/// false if the text is none of these or exceeds the address space.
bool parse_size(const std::string& text, std::size_t* bytes);

/// Returns the sizes of a sweep, ascending and distinct.
std::vector<std::size_t> sweep_sizes(const Options& options);

const char* name_of(Mode mode);
const char* name_of(Alloc alloc);

} // namespace perf
