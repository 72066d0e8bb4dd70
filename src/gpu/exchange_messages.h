#pragma once

// Messages of an exchange (exchange.h), as the kernel and the host divide them.

#include <cstddef>
#include <cstdint>

#include "kernels/convert.h"

namespace whorl::gpu {

/// Messages between a rank and one other, or itself. The program of a rank in an exchange is one of
/// these for each rank.
struct PairMessages {
  const std::byte* source = nullptr; ///< message that the rank sends
  std::uint64_t sent = 0;            ///< bytes of that message
  std::byte* target = nullptr;       ///< place of the message that the rank receives
  std::uint64_t taken = 0;           ///< bytes of that message
};

/// Returns the bytes of the chunks, a multiple of 128, in which a message of `bytes` goes through
/// `parts` FIFOs; both ends divide it alike. Chunks are no smaller than what a flag costs, so that
/// a small message takes few FIFOs, and no larger than is fastest where ranks share a device,
/// because their slots then stay in its L2 cache (docs/results/gpu_exchange_2026-11-27.md).
WHORL_HOST_DEVICE std::uint64_t exchange_chunk(std::uint64_t bytes, std::uint32_t parts,
                                               std::uint32_t slot_bytes) {
  constexpr std::uint64_t kLeast = 8192, kMost = 32768, kMultiple = 128;
  const std::uint64_t share = ((bytes + parts - 1) / parts + kMultiple - 1) / kMultiple * kMultiple;
  const std::uint64_t chunk = share < kLeast ? kLeast : share < kMost ? share : kMost;
  return chunk < slot_bytes ? chunk : slot_bytes;
}

/// Returns the FIFO of the first chunk of a message over `distance` ranks, 1 to `nranks` − 1.
WHORL_HOST_DEVICE std::uint32_t exchange_turn(std::uint32_t distance, std::uint32_t nranks,
                                              std::uint32_t parts) {
  const std::uint32_t apart = parts / (nranks - 1);
  return (distance - 1) * (apart > 0 ? apart : 1) % parts;
}

} // namespace whorl::gpu
