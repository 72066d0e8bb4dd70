#pragma once

#include <span>

#include "algorithms/algorithm.h"
#include "base/status.h"
#include "schedule/verify.h"

namespace whorl {

/// Proves the schedules of all ranks that `algorithm` has made for `shape`, out of place and in
/// place, each with every one of `forms`, and that FIFOs of `slots` slots are enough for them. The
/// error names the algorithm, and the defect or how many slots are needed.
Status prove(const Algorithm& algorithm, const Shape& shape, std::span<const Schedule> schedules,
             std::span<const VerifyOptions> forms, int slots);

} // namespace whorl
