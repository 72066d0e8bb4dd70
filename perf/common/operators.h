// Operators of the library for those of the command line.
#pragma once

#include "perf/common/api.h"
#include "perf/common/types.h"

namespace perf {

/// Returns the library's operator for `op`; makes one for kMulSum, which destroy_operator()
/// destroys.
RedOp make_operator(Operator op, DataType type, Comm comm);
void destroy_operator(Operator op, RedOp handle, Comm comm);

} // namespace perf
