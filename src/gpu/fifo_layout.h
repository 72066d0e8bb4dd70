#pragma once

// Where the FIFOs of a rank lie in its device's memory. A message from rank a to rank b is written
// into a slot of b's region; b polls the tail there, a polls the head in its own region. So both
// poll memory of their own device, and only data and one flag for each message cross the link.
//
//     region of b:   tail[a]   ◀── a, after it has filled a slot       polled by b
//                    slots[a]  ◀── a
//     region of a:   head[b]   ◀── b, after it has emptied a slot      polled by a
//
// Flags count messages since the region was made and never begin anew, and both ends keep their own
// count there, too. So a launch needs to be told nothing about those before it, and can be repeated
// by a graph.

#include <cstddef>
#include <cstdint>

#include "kernels/convert.h"

namespace whorl::gpu {

/// Of a launch of the interpreter, see program.h.
inline constexpr int kMaxRanks = 64;
/// Blocks of one rank: lanes times instances.
inline constexpr std::uint32_t kMaxBlocksOfRank = 64;

/// A flag that one end writes and the other polls, with the poller's own count of messages. Nothing
/// else is written to its line.
struct alignas(128) FifoEnd {
  std::uint64_t flag;  ///< written by the peer: messages that it has sent, or taken
  std::uint64_t count; ///< of this end, between launches: messages taken, or sent
};

/// Of the lanes of a rank that wait for each other.
struct alignas(128) LaneProgress {
  std::uint64_t value; ///< launch << 32 | steps finished in it
};

/// The first bytes of a region.
struct alignas(128) RegionHead {
  std::uint64_t launch;   ///< of programs whose lanes wait for each other: those that are over
  std::uint32_t left;     ///< blocks that have left the present one
  std::uint32_t reported; ///< 1: a block has reported a failure
};

/// Alike on all ranks of a communicator.
struct FifoLayout {
  std::uint32_t nranks = 0;
  std::uint32_t channels = 0;   ///< FIFOs from one rank to another
  std::uint32_t slots = 0;      ///< of a FIFO; at least Schedule::min_slots; a power of two
  std::uint32_t slot_bytes = 0; ///< payload of a slot; multiple of 128

  WHORL_HOST_DEVICE std::size_t progress_at() const { return sizeof(RegionHead); }
  WHORL_HOST_DEVICE std::size_t ends_at() const {
    return progress_at() + kMaxBlocksOfRank * sizeof(LaneProgress);
  }
  /// The end at which this rank receives from `peer`, or sends to it.
  WHORL_HOST_DEVICE std::size_t end_at(bool sends, std::uint32_t peer,
                                       std::uint32_t channel) const {
    return ends_at() + ((sends ? nranks * channels : 0u) + peer * channels + channel) *
                           std::size_t{sizeof(FifoEnd)};
  }
  WHORL_HOST_DEVICE std::size_t slots_at() const { return end_at(true, nranks, 0); }
  /// Slot of message `number` (from 0) that `peer` sends to this rank.
  WHORL_HOST_DEVICE std::size_t slot_at(std::uint32_t peer, std::uint32_t channel,
                                        std::uint64_t number) const {
    return slots_at() + (std::size_t{peer * channels + channel} * slots +
                         static_cast<std::size_t>(number & (slots - 1))) *
                            slot_bytes;
  }
  /// What is zero at first.
  std::size_t head_bytes() const { return slots_at(); }
  std::size_t region_bytes() const {
    return slots_at() + std::size_t{nranks} * channels * slots * slot_bytes;
  }
};

} // namespace whorl::gpu
