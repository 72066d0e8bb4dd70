#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "engine/request.h"
#include "gpu/program.h"

namespace whorl {

/// Encodes what a kernel's report repeats of its operation, besides the number of elements or
/// bytes. `uneven`: blocks of some rank may differ in size.
std::uint64_t report_tag(const Request& request, bool uneven = false);

/// Reads the report of a kernel, perhaps of another process; state is 0 if there is none yet, or a
/// malformed one.
gpu::Report read_report(gpu::Report& report) noexcept;

/// Returns the error that follows from the reports of all ranks: it names the rank at the end of
/// the chain of waits, and the rank that this one waited for. OK if no wait has timed out. `names`
/// are those of the ranks.
Status error_of(std::span<const gpu::Report> reports, std::span<const std::string> names);

} // namespace whorl
