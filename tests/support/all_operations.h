#pragma once

#include <string>

#include "whorl/whorl.h"

namespace whorl::test {

/// Makes one call of each of operations() on `comm`, with a few elements for each rank, and
/// compares the results. Returns the first error, or "". All ranks must call it.
std::string all_operations(int rank, int nranks, whorlComm_t comm);

} // namespace whorl::test
