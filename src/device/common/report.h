#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "engine/request.h"
#include "gpu/program.h"

namespace whorl {

/// What a kernel's report repeats of its operation, besides the number of elements or bytes.
std::uint64_t report_tag(const Request& request);

/// What a kernel, perhaps of another process, has reported so far; state is 0 if nothing, or
/// nothing that makes sense.
gpu::Report read_report(gpu::Report& report) noexcept;

/// The error that the reports of all ranks come to: whom the rank waited for that did not wait for
/// another one. OK if nobody's time had run out. `names` are those of the ranks.
Status error_of(std::span<const gpu::Report> reports, std::span<const std::string> names);

} // namespace whorl
