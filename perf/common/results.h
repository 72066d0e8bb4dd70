// Verification of what an operation leaves in a rank's buffer.
#pragma once

#include <cstddef>

#include "perf/common/collective.h"
#include "perf/common/verify.h"

namespace perf {

/// Byte with which receive sides are filled before an operation.
inline constexpr auto kUntouched = std::byte{0xc3};

/// Counts the wrong elements of one rank's buffer after an operation. `base` is the receive side,
/// or in place the whole buffer. Elements outside the expected segments must hold the rank's own
/// input where that lies (in place) and kUntouched bytes elsewhere. `shift` is the shift of all
/// inputs, see Pattern.
std::size_t count_wrong_results(const Collective& collective, const Pattern& pattern,
                                const Place& place, std::size_t count, const std::byte* base,
                                bool in_place, std::size_t shift);

} // namespace perf
