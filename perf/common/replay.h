#pragma once

#include <cstddef>
#include <vector>

#include "perf/common/memory.h"
#include "perf/common/report.h"
#include "perf/common/session.h"

namespace perf {

/// Replays the gradient allreduces of one training step of `options.workload` with elements of
/// `type`, in place, bucket after bucket: `options.iterations` steps, with the mode's treatment of
/// the buffers between steps. Appends one row for each bucket to `rows` (timed one by one; not
/// valid with streams, where buckets overlap) and returns the result of the whole step.
StepResult replay(const Options& options, const Session& session, DataType type, Operator op,
                  std::vector<Row>* rows, std::int64_t* guard_damage);

/// Returns the bytes that one rank's gradients take.
std::size_t replay_bytes(const Options& options);

} // namespace perf
