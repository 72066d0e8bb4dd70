// Files that a run leaves: JSON and plots.
#pragma once

#include <cstddef>
#include <string>

#include "perf/common/options.h"

namespace perf {

/// Throws BadCommand if a file that `options` names cannot be written, or not drawn with so many
/// curves. Called before the first measurement, which may be an hour before the last one.
void require_outputs(const Options& options, std::size_t curves);

/// Writes the files that `options` names from `json`, the result of to_json(). Throws Failure.
void write_outputs(const Options& options, const std::string& json);

} // namespace perf
