#pragma once

// Layout of the FIFOs of a rank in its device's memory. A message from rank a to rank b is written
// into a slot of b's region; b polls the tail there, a polls the head in its own region. So both
// poll memory of their own device, and only data and one flag for each message cross the link.
//
//     region of b:   tail[a]   ◀── a, after it has filled a slot       polled by b
//                    slots[a]  ◀── a
//     region of a:   head[b]   ◀── b, after it has emptied a slot      polled by a
//
// Flags count messages since the region was made and are never reset, and both ends keep their own
// count there, too. So a launch needs no information about earlier ones, and a graph can repeat it.
//
// A small message may be written in lines instead, each with the number of the message, so that it
// needs no tail (direct.h). Lines have slots of their own, which take turns as the others do.

#include <cstddef>
#include <cstdint>

#include "kernels/convert.h"

namespace whorl::gpu {

/// Largest number of ranks in a launch of the interpreter, see program.h.
inline constexpr int kMaxRanks = 64;
/// Largest number of blocks of one rank: lanes times instances.
inline constexpr std::uint32_t kMaxBlocksOfRank = 64;

/// Flag that one end writes and the other polls, with the poller's own count of messages. Nothing
/// else is written to its line.
struct alignas(128) FifoEnd {
  std::uint64_t flag;  ///< number of messages that the peer has sent, or taken; written by the peer
  std::uint64_t count; ///< messages that this end has taken, or sent; kept between launches
};

/// 16 bytes that are written, and read, by one access: a reader that finds the number of a message
/// has its data, too.
struct alignas(16) Line {
  std::uint64_t data;
  std::uint64_t number; ///< number of the message, from 1
};

/// Largest message in lines, in bytes of data.
inline constexpr std::uint32_t kLineMessage = 4096;
/// Number of messages from one rank to another that have lines of their own, on each channel.
inline constexpr std::uint32_t kLineSlots = 2;

/// Progress of a lane of a rank whose lanes wait for each other.
struct alignas(128) LaneProgress {
  std::uint64_t value; ///< launch << 32 | steps finished in it
};

/// First bytes of a region.
struct alignas(128) RegionHead {
  std::uint64_t launch; ///< number of finished launches of programs whose lanes wait for each other
  std::uint32_t left;   ///< number of blocks that have left the present launch
  std::uint32_t reported; ///< whether (1) a block has reported a failure
};

/// Layout of a region; alike on all ranks of a communicator.
struct FifoLayout {
  std::uint32_t nranks = 0;
  std::uint32_t channels = 0;   ///< number of FIFOs from one rank to another
  std::uint32_t slots = 0;      ///< number in a FIFO; at least Schedule::min_slots; a power of two
  std::uint32_t slot_bytes = 0; ///< payload of a slot; multiple of 128

  WHORL_HOST_DEVICE std::size_t progress_at() const { return sizeof(RegionHead); }
  WHORL_HOST_DEVICE std::size_t ends_at() const {
    return progress_at() + kMaxBlocksOfRank * sizeof(LaneProgress);
  }
  /// Returns the offset of the end at which this rank receives from `peer`, or sends to it.
  WHORL_HOST_DEVICE std::size_t end_at(bool sends, std::uint32_t peer,
                                       std::uint32_t channel) const {
    return ends_at() + ((sends ? nranks * channels : 0u) + peer * channels + channel) *
                           std::size_t{sizeof(FifoEnd)};
  }
  /// Returns the end of a FIFO in `region`, at which its rank receives from `peer` or sends to it.
  WHORL_HOST_DEVICE FifoEnd& end(std::byte* region, bool sends, std::uint32_t peer,
                                 std::uint32_t channel) const {
    return *reinterpret_cast<FifoEnd*>(region + end_at(sends, peer, channel));
  }
  WHORL_HOST_DEVICE std::size_t lines_at() const { return end_at(true, nranks, 0); }
  WHORL_HOST_DEVICE std::size_t slots_at() const { return line_at(nranks, 0, 0); }
  /// Returns the offset of the slot of message `number` (from 0) that `peer` sends to this rank.
  WHORL_HOST_DEVICE std::size_t slot_at(std::uint32_t peer, std::uint32_t channel,
                                        std::uint64_t number) const {
    return slots_at() + (std::size_t{peer * channels + channel} * slots +
                         static_cast<std::size_t>(number & (slots - 1))) *
                            slot_bytes;
  }
  /// Returns the offset of the first line of message `number` (from 0) that `peer` sends to this
  /// rank.
  WHORL_HOST_DEVICE std::size_t line_at(std::uint32_t peer, std::uint32_t channel,
                                        std::uint64_t number) const {
    constexpr std::size_t kBytes = kLineMessage / sizeof(Line::data) * sizeof(Line);
    return lines_at() + (std::size_t{peer * channels + channel} * kLineSlots +
                         static_cast<std::size_t>(number % kLineSlots)) *
                            kBytes;
  }
  /// Returns how many bytes from the start must be zero at first.
  std::size_t head_bytes() const { return slots_at(); }
  std::size_t region_bytes() const {
    return slots_at() + std::size_t{nranks} * channels * slots * slot_bytes;
  }
};

} // namespace whorl::gpu
