#pragma once

#include <cstddef>
#include <cstdint>

#include "algorithms/algorithm.h"

namespace whorl {

/// Way in which a rank makes sure that all ranks make the same call, before it writes to the output
/// of an operation. Other ranks' messages carry fingerprints of their calls, but the first messages
/// that come may be those of ranks that agree.
enum class Agreement : std::uint8_t {
  /// The data do it: each result depends on the inputs of all ranks, or of the root alone.
  kByData,
  /// The first message of each rank is there before the output is written (Algorithm::tells_all).
  kByFirstMessages,
  /// The result is made in scratch memory, and copied to the output when it is complete.
  kByCopy,
  /// The ranks meet in a barrier first, whose messages carry the fingerprint of the operation.
  kByBarrier,
};

/// Chooses the way for an operation whose larger side has `bytes` bytes. `may_copy`: whether the
/// output has no gaps. All ranks choose alike.
Agreement agreement_of(const Algorithm& algorithm, std::size_t bytes, bool may_copy) noexcept;

} // namespace whorl
