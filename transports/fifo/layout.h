#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/fingerprint.h"
#include "base/status.h"
#include "transports/fifo/store_policy.h"

/// Layout of the memory that the ranks of one host (shm) or one process (inproc) share.
///
///   SegmentHeader | RankState 0 … n−1 | FIFOs in the order [channel][from][to]
///
///   one FIFO:  FifoHead | slot 0 | slot 1 | … | ring      one slot:  SlotHeader | payload
///
/// The ring, where there is one, has payloads that are not in their slots. All memory is
/// initially zero. A FIFO through which no message goes, such as those of the diagonal, is never
/// touched and costs address space only.
namespace whorl {

/// Distance in bytes between data of two writers: two lines, since processors fetch lines in pairs.
inline constexpr std::size_t kWriterDistance = 128;
inline constexpr std::size_t kPageBytes = 4096;
/// Largest payload that travels in the line of the flag, so that one line moves instead of two.
inline constexpr std::size_t kSmallBytes = 40;

/// Line before each payload. Written by the sender; `flag` is written last.
struct alignas(64) SlotHeader {
  /// Bits 0–31: number of the message that is complete in this slot, from 1, modulo 2³². Bits
  /// 32–61: bytes of payload. Bit 62: the receiver is to time the message. Bit 63: the payload is
  /// not in the FIFO: `small` holds a Descriptor or, with bit 32, the payload is in the buffer that
  /// the receiver exposed. All in one word, so that a message of a sender that dies half way never
  /// becomes visible.
  std::atomic<std::uint64_t> flag;
  Fingerprint fingerprint;
  /// Payload up to kSmallBytes, or the Placement of a larger one, or a Descriptor.
  std::array<std::byte, kSmallBytes> small;
};
static_assert(sizeof(SlotHeader) == 64);

/// Place of a payload that is not in its header, and, of a message that is to be timed, when the
/// sender had written it.
struct Placement {
  std::uint64_t offset;    ///< offset in the FIFO; 0 if the payload is in an exposed buffer
  std::uint64_t filled_ns; ///< time by the clock that all processes share; 0: not timed
  /// 1: the payload was written with ordinary stores, and is large enough for others to come into
  /// question.
  std::uint64_t in_cache;
};
static_assert(sizeof(Placement) <= kSmallBytes);

/// Memory of one rank that the other rank reads or writes.
struct Descriptor {
  std::uint64_t offset; ///< offset in the writing rank's heap (shm); address (inproc)
  std::uint64_t bytes;
};
static_assert(sizeof(Descriptor) <= kSmallBytes);

/// Number of messages after the last released one for which a receiver can expose a buffer. Larger:
/// a sender that is far ahead still finds buffers. Smaller: less memory for each FIFO.
inline constexpr std::uint64_t kRecvBuffersAhead = 8;

/// Memory where a receiver wants a message. Written by the receiver; `number` is written last.
struct alignas(64) ExposedBuffer {
  std::atomic<std::uint64_t> number; ///< number of the message, from 1
  Descriptor memory;                 ///< destination in the receiver's memory
  Fingerprint expected;
};

/// Header before the slots of a FIFO. Written by the receiver.
struct alignas(kWriterDistance) FifoHead {
  std::atomic<std::uint64_t> released; ///< number of messages released so far
  /// Best pace, as of pace_of(), at which the receiver emptied the last run of timed messages, by
  /// store_class().
  std::array<std::atomic<std::uint32_t>, kStoreClasses> pace;
  /// Buffers of the next messages; that of message n has the index n % kRecvBuffersAhead.
  alignas(kWriterDistance) std::array<ExposedBuffer, kRecvBuffersAhead> exposed;
};

/// Words by which a rank is woken. Peers read `sleeping` after each message, so the line stays
/// shared by all caches until the rank sleeps.
struct alignas(kWriterDistance) Doorbell {
  std::atomic<std::uint32_t> sleeping; ///< 1: the rank asks to be woken
  std::atomic<std::uint32_t> rings;    ///< futex
};

/// Operation in which a rank is stuck, as its peers read it. Written by the rank:
/// `changes` is odd while it writes.
struct alignas(kWriterDistance) StuckWords {
  std::atomic<std::uint32_t> changes;
  std::array<std::atomic<std::uint64_t>, 3> words; ///< a StuckOperation
};

/// Words of one rank in the segment.
struct RankState {
  alignas(kWriterDistance) std::atomic<std::uint32_t> attached; ///< 1: the rank has attached
  std::atomic<std::uint32_t> left; ///< 1: the rank has destroyed its communicator
  /// 1: a peer has noticed the end of the rank's process. Written by peers, because not every rank
  /// watches all processes.
  std::atomic<std::uint32_t> died;
  std::atomic<std::uint32_t>
      revoked; ///< 1: peers must not access the rank's memory any more, after a failure
  /// Number of messages of which the rank is reading or writing the payload in memory of another
  /// rank. Written by the rank, and read after failures only.
  alignas(kWriterDistance) std::atomic<std::uint32_t> touching;
  Doorbell doorbell;
  StuckWords stuck;
};

/// States of the communicator's error in the segment.
inline constexpr std::uint32_t kNoError = 0;
inline constexpr std::uint32_t kErrorBeingWritten = 1;
inline constexpr std::uint32_t kErrorWritten = 2;

struct SegmentHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t ranks;
  std::uint32_t channels;
  std::uint32_t slots;
  std::uint64_t slot_bytes;
  std::uint64_t size;
  /// State of the communicator's error. The first rank that fails changes it from kNoError, and
  /// alone writes `text`.
  alignas(kWriterDistance) std::atomic<std::uint32_t> comm_error;
  /// Number of ranks that have left: while it is 0, no rank has to check all others.
  std::atomic<std::uint32_t> leavers;
  std::array<char, 1500> text; ///< zero-terminated
};

inline constexpr std::uint64_t kSegmentMagic = 0x314c'524f'4857ULL; // "WHORL1"
inline constexpr std::uint32_t kSegmentVersion = 11;

/// Sizes in one FIFO, which follow from the number and the size of its slots.
///
/// Without a ring, every payload is in its slot. With one, short payloads are in their slots, and
/// others in the ring. A lap of the ring may end as soon as it has taken as many bytes as all
/// messages under way can have: then the start of the ring is free.
struct FifoShape {
  std::size_t positions = 0; ///< slots that have memory: a power of two, so that numbers are masked
  std::size_t in_slot_bytes = 0; ///< largest payload in a slot
  std::size_t stride = 0;        ///< distance of two slots
  std::size_t slots_size = 0;    ///< bytes without the ring, whole pages; the ring is behind them
  std::size_t shortest_lap = 0;  ///< bytes that a lap takes at least; 0: there is no ring
  std::size_t longest_lap = 0;   ///< bytes after which a lap ends at the latest
  std::size_t first_size = 0;    ///< bytes of slots and of a ring with shortest laps, whole pages
  std::size_t size = 0;          ///< bytes of the FIFO, whole pages

  FifoShape() = default;
  /// Computes the sizes, with all laps of the shortest length unless there may be `long_laps`. Does
  /// not overflow with up to 2²⁰ slots of less than 1 GiB.
  constexpr FifoShape(std::size_t slots, std::size_t slot_bytes, bool long_laps) noexcept {
    positions = 1;
    while (positions < slots) positions *= 2;
    const bool ring =
        slots >= kMinRingSlots && slots * slot_bytes >= kMinRingBytes && slot_bytes > kShortBytes;
    in_slot_bytes = ring ? kShortBytes : slot_bytes;
    stride = sizeof(SlotHeader) + in_slot_bytes;
    slots_size = round_up(sizeof(FifoHead) + positions * stride, kPageBytes);
    if (ring) shortest_lap = slots * slot_bytes;
    longest_lap = ring && long_laps ? std::max(shortest_lap, kLongestLap) : shortest_lap;
    const std::size_t last = ring ? slot_bytes : 0; // begins before the end of its lap
    first_size = slots_size + round_up(shortest_lap + last, kPageBytes);
    size = slots_size + round_up(longest_lap + last, kPageBytes);
  }

 private:
  /// Fewest slots, and bytes of slots, with which a FIFO has a ring. Ranks that share cores have
  /// fewer (src/comm/decisions.cc): they find each other's messages in the cache that they share.
  /// So have communicators with TCP, whose slots are few and large.
  static constexpr std::size_t kMinRingSlots = 8, kMinRingBytes = 512 * 1024;
  /// Largest payload in a slot where there is a ring: short ones come back to their lines while
  /// these are in the first-level cache, which is quicker still than the ring. The stride of slots
  /// is a multiple of kWriterDistance, but no power of two, so that they are in different sets.
  static constexpr std::size_t kShortBytes = 2112;
  static_assert((sizeof(SlotHeader) + kShortBytes) % kWriterDistance == 0);
  /// Three times the bytes of a core's own cache, as in the cost model. Less: lines at the start of
  /// the ring may still be in the reader's cache. More: large vectors find less room in the
  /// last-level cache.
  static constexpr std::size_t kLongestLap = 3 << 20;
};

struct SegmentShape {
  std::uint32_t ranks = 0; ///< number of ranks that share the segment
  std::uint32_t channels = 0;
  std::uint32_t slots = 0;      ///< number of slots of each FIFO
  std::uint64_t slot_bytes = 0; ///< multiple of 64
  bool long_laps = true; ///< whether FIFOs may take more memory than their slots and one more
};

/// Offsets in a segment of one shape.
class SegmentLayout {
 public:
  SegmentLayout() = default;
  /// Computes the layout. Returns an error if a count is zero, `slot_bytes` is no multiple of 64,
  /// or the size exceeds the address space.
  static Result<SegmentLayout> make(const SegmentShape& shape);

  const SegmentShape& shape() const noexcept { return shape_; }
  std::size_t size() const noexcept { return size_; }
  /// Returns the bytes of header and states, in pages, which must be backed from the start.
  std::size_t control_bytes() const noexcept { return control_bytes_; }
  std::size_t state_offset(std::size_t local_rank) const noexcept {
    return states_offset_ + local_rank * sizeof(RankState);
  }
  std::size_t fifo_offset(std::size_t channel, std::size_t from, std::size_t to) const noexcept {
    return control_bytes_ + ((channel * shape_.ranks + from) * shape_.ranks + to) * fifo_.size;
  }
  const FifoShape& fifo() const noexcept { return fifo_; }

  /// Writes the header of a new segment. check() compares the header of a received one.
  void stamp(SegmentHeader& header) const noexcept;
  Status check(const SegmentHeader& header) const;

 private:
  SegmentShape shape_;
  std::size_t states_offset_ = 0;
  std::size_t control_bytes_ = 0;
  FifoShape fifo_;
  std::size_t size_ = 0;
};

} // namespace whorl
