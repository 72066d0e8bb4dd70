#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/fingerprint.h"
#include "base/status.h"

/// Layout of the memory that the ranks of one host (shm) or one process (inproc) share.
///
///   SegmentHeader | RankState 0 … n−1 | FIFOs in the order [channel][from][to]
///
///   one FIFO:  FifoHead | slot 0 | slot 1 | …      one slot:  SlotHeader | payload
///
/// All memory is initially zero. A FIFO through which no message goes, such as those of the
/// diagonal, is never touched and costs address space only.
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
  /// elsewhere: `small` holds a Descriptor or, with bit 32, the payload is in the buffer that the
  /// receiver exposed. All in one word, so that a message of a sender that dies half way never
  /// becomes visible.
  std::atomic<std::uint64_t> flag;
  Fingerprint fingerprint;
  std::array<std::byte, kSmallBytes> small; ///< payload up to kSmallBytes, or a Descriptor
};
static_assert(sizeof(SlotHeader) == 64);

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
  /// Best pace, as of pace_of(), at which the receiver emptied the last run of timed messages.
  std::atomic<std::uint32_t> pace;
  /// Buffers of the next messages; that of message n has the index n % kRecvBuffersAhead.
  alignas(kWriterDistance) std::array<ExposedBuffer, kRecvBuffersAhead> exposed;
};

/// Words by which a rank is woken. Peers read `sleeping` after each message, so the line stays
/// shared by all caches until the rank sleeps.
struct alignas(kWriterDistance) Doorbell {
  std::atomic<std::uint32_t> sleeping; ///< 1: the rank asks to be woken
  std::atomic<std::uint32_t> rings;    ///< futex
};

/// Words of one rank in the segment.
struct RankState {
  alignas(kWriterDistance) std::atomic<std::uint32_t> attached; ///< 1: the rank has attached
  std::atomic<std::uint32_t> left; ///< 1: the rank has destroyed its communicator
  std::atomic<std::uint32_t>
      revoked; ///< 1: peers must not access the rank's memory any more, after a failure
  /// Number of messages of which the rank is reading or writing the payload in memory of another
  /// rank. Written by the rank, and read after failures only.
  alignas(kWriterDistance) std::atomic<std::uint32_t> touching;
  Doorbell doorbell;
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
inline constexpr std::uint32_t kSegmentVersion = 7;

struct SegmentShape {
  std::uint32_t ranks = 0; ///< number of ranks that share the segment
  std::uint32_t channels = 0;
  std::uint32_t slots = 0;      ///< number of slots of each FIFO
  std::uint64_t slot_bytes = 0; ///< multiple of 64
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
    return control_bytes_ + ((channel * shape_.ranks + from) * shape_.ranks + to) * fifo_bytes_;
  }
  /// Returns the bytes of one FIFO, whole pages.
  std::size_t fifo_bytes() const noexcept { return fifo_bytes_; }

  /// Writes the header of a new segment. check() compares the header of a received one.
  void stamp(SegmentHeader& header) const noexcept;
  Status check(const SegmentHeader& header) const;

 private:
  SegmentShape shape_;
  std::size_t states_offset_ = 0;
  std::size_t control_bytes_ = 0;
  std::size_t fifo_bytes_ = 0;
  std::size_t size_ = 0;
};

/// Returns the number of slots for which a ring has memory: a power of two, so that positions are
/// masked. At most `slots` of them are in use at any time.
constexpr std::size_t ring_slots(std::size_t slots) noexcept {
  std::size_t ring = 1;
  while (ring < slots) ring *= 2;
  return ring;
}
constexpr std::size_t slot_stride(std::size_t slot_bytes) noexcept {
  return sizeof(SlotHeader) + slot_bytes;
}
/// Returns the bytes of one FIFO, whole pages. Does not overflow with up to 2²⁰ slots of less than
/// 2 GiB.
constexpr std::size_t fifo_size(std::size_t slots, std::size_t slot_bytes) noexcept {
  const std::size_t bytes = sizeof(FifoHead) + ring_slots(slots) * slot_stride(slot_bytes);
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

} // namespace whorl
