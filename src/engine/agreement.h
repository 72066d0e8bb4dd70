#pragma once

#include <cstddef>
#include <cstdint>

#include "algorithms/algorithm.h"

namespace whorl {

/// Way in which a rank makes sure that all ranks make the same call, before it writes to the output
/// of an operation. Other ranks' messages carry fingerprints of their calls, but the first messages
/// that come may be those of ranks that agree. Only a barrier needs the other ranks: each may
/// choose among the other ways by itself.
enum class Agreement : std::uint8_t {
  /// The data do it: each result depends on the inputs of all ranks, or of the root alone; or this
  /// rank has no output.
  kByData,
  /// The first message of each rank is there before the output is written (Algorithm::tells_all).
  kByFirstMessages,
  /// The result is made in scratch memory, and copied to the output when it is complete.
  kByCopy,
  /// The ranks meet in a barrier first, whose messages carry the fingerprint of the operation.
  kByBarrier,
  /// Nothing does: the output is small, but has gaps, or there is no memory for a copy.
  kMissing,
};

/// Chooses the way for an operation whose larger side has `bytes` bytes. All ranks choose the
/// barrier or none does.
Agreement agreement_of(const Algorithm& algorithm, std::size_t bytes) noexcept;
/// Returns the way that takes the place of a copy.
Agreement agreement_without_copy(const Algorithm& algorithm) noexcept;

} // namespace whorl
