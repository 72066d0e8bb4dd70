#pragma once

#include "comm/setup.h"

namespace whorl {

/// Makes the recorder of a communicator whose set-up begins, and opens its trace and its profiler
/// if there are to be any. The error names the variable with a file that cannot be written or
/// loaded.
Status open_records(Setup& setup, const Identity& identity, int rank, int nranks);

/// Shows the error of a communicator that has just failed to those who look from outside, and
/// writes its last operations to the file that WHORL_FLIGHT_FILE names.
void record_failure(const Setup& setup) noexcept;

/// Logs, as information, for which ranks this rank has waited longest.
void log_waits(const Membership& members, const monitor::Recorder& recorder);

} // namespace whorl
