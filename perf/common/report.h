#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "perf/common/options.h"

namespace perf {

/// Percentiles of the times of single operations (of groups, divided, where several are issued
/// together), each on the rank where it is largest. All 0 where operations are not timed one by
/// one.
struct Percentiles {
  double p50_us = 0;
  double p99_us = 0;
  double p999_us = 0;
  double max_us = 0;
};
/// Returns the percentiles of one rank's times, which it sorts.
Percentiles percentiles_of(std::vector<float>& times_us);

/// Measured side of a row.
struct Sample {
  bool valid = false; ///< false: the collective has no such side
  double time_us = 0; ///< time of one operation
  double algbw_gbs = 0;
  double busbw_gbs = 0;
  std::int64_t wrong = -1; ///< number of wrong elements; −1: not verified
  Percentiles percentiles; ///< modes dirty and moving only
  int iterations = 0;      ///< number of timed operations; 0: not shown
};

struct Row {
  std::size_t bytes; ///< bytes of the larger side
  std::size_t count; ///< count argument of the call
  DataType type;
  Operator op;           ///< operator; kNone for copies
  int root;              ///< root; −1 if the collective has none
  int cycle = 1;         ///< number of the cycle of all sizes, from 1 on
  std::string algorithm; ///< name of the library's algorithm; empty: not known
  std::string time;      ///< date and time at which the row was complete, of the host's zone
  Sample out_of_place;
  Sample in_place;
};

/// Measured step of a replayed model.
struct StepResult {
  std::string model;
  DataType type;
  Operator op;
  std::size_t parameters;
  std::size_t elements;
  std::size_t buckets;
  std::size_t bytes;
  Sample sample;
};

/// Identity of a rank, as the header shows it.
struct RankInfo {
  int rank;
  int pid;
  int thread;
  char host[64];
  int device = -1; ///< number of the CUDA device with the rank's buffers; −1: none
  char device_name[64];
  char transports[64] =
      {}; ///< names of the transports to the other ranks: "shm, tcp"; may be empty
};

/// Ranks of a run.
struct Job {
  const char* launcher = nullptr; ///< name of the launcher; null: the program itself
  std::vector<RankInfo> ranks;
  std::string topology; ///< line of the library about where the ranks are; may be empty
};

/// Machine that rank 0 runs on.
struct Machine {
  std::string processor;
  std::string kernel;
  int cores;
  std::size_t memory_bytes;
};
Machine this_machine();

/// Results of a whole run.
struct Summary {
  std::int64_t out_of_bounds = 0; ///< number of wrong elements and changed guard bytes
  double avg_busbw_gbs = 0;
  bool verified = true;
  double init_ms = 0;                  ///< time to create the communicator, on the slowest rank
  std::int64_t communicator_bytes = 0; ///< memory of the communicator, on the rank that uses most
  std::int64_t buffer_bytes = 0;       ///< memory of the buffers of one rank
};

/// Returns the local date and time as "2026-11-26 18:00:00".
std::string local_time();
/// Returns the lines before the table, ending with its column titles.
std::string format_header(const std::string& program, const Options& options, const Job& job);
/// Returns the comment lines below a row with the percentiles of its sides.
std::string format_percentiles(const Row& row);
/// Returns one line of the table, in nccl-tests' columns; `timestamps`: with a last column of the
/// time.
std::string format_row(const Row& row, bool timestamps = false);
/// Returns a sentence with the time of one step of a model; it stands below the rows of the step's
/// buckets.
std::string format_step(const StepResult& step);
/// Returns the two lines behind the table.
std::string format_summary(const Summary& summary);
/// Returns the line of --memory_report.
std::string format_memory(const Summary& summary);
/// Computes the mean bus bandwidth over all valid samples (of the steps if there are any), and sums
/// the wrong elements of all rows and steps.
Summary summarize(const std::vector<Row>& rows, const std::vector<StepResult>& steps,
                  std::int64_t guard_damage, bool verified);

/// Returns the run as JSON: command, date, environment, configuration, machine, ranks, rows,
/// summary.
std::string to_json(const std::string& program, const Options& options, const Job& job,
                    const Machine& machine, const std::vector<Row>& rows,
                    const std::vector<StepResult>& steps, const Summary& summary);

} // namespace perf
