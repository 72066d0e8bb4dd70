// Files that a run leaves: JSON and plots.
#pragma once

#include <string>

#include "perf/common/options.h"

namespace perf {

/// Throws Failure if a file that `options` names cannot be written, or not drawn. Called before the
/// first measurement, which may be an hour before the last one.
void require_outputs(const Options& options);

/// Writes the files that `options` names from `json`, the result of to_json(). Throws Failure.
void write_outputs(const Options& options, const std::string& json);

} // namespace perf
