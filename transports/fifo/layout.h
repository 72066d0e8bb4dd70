#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/fingerprint.h"
#include "base/status.h"

/// What lies where in the memory that the ranks of one host (shm) or one process (inproc) share.
///
///   SegmentHeader | Place 0 … n−1 | board | FIFOs in the order [channel][from][to]
///
///   one FIFO:  FifoHead | slot 0 | slot 1 | …      one slot:  SlotHeader | payload
///
/// All memory starts as zeros. A FIFO that no message ever went through is never touched and costs
/// address space only; that holds for the diagonal, too.
namespace whorl {

/// Distance that keeps two writers apart: two lines, since processors fetch lines in pairs.
inline constexpr std::size_t kWriterDistance = 128;
inline constexpr std::size_t kPageBytes = 4096;
/// Payloads up to this size travel in the line of the flag: one line moves instead of two.
inline constexpr std::size_t kSmallBytes = 40;

/// The line before each payload. Written by the sender, all before `flag`.
struct alignas(64) SlotHeader {
  /// Bits 0–31: number of the message that is complete in this slot, from 1, modulo 2³². Bits
  /// 32–61: bytes of payload. Bit 62: the receiver is to time it. Bit 63: the payload is not here:
  /// `small` holds a Descriptor or, with bit 32, it is in the place that the receiver offered. One
  /// word, so that a sender that dies half way leaves a message that never becomes visible.
  std::atomic<std::uint64_t> flag;
  Fingerprint fingerprint;
  std::array<std::byte, kSmallBytes> small; ///< payload up to kSmallBytes, or a Descriptor
};
static_assert(sizeof(SlotHeader) == 64);

/// Memory of one rank that the other one reads or writes.
struct Descriptor {
  std::uint64_t offset; ///< in the heap of who wrote this (shm); the address (inproc)
  std::uint64_t bytes;
};
static_assert(sizeof(Descriptor) <= kSmallBytes);

/// Messages after the last released one for which a receiver can offer a place. Larger: a sender
/// that is far ahead still finds places. Smaller: less memory for each FIFO.
inline constexpr std::uint64_t kPlacesAhead = 8;

/// Where a receiver wants a message. Written by it, all before `number`.
struct alignas(64) PlaceOffer {
  std::atomic<std::uint64_t> number; ///< of the message, from 1
  Descriptor place;                  ///< in the receiver's memory
  Fingerprint expected;
};

/// Before the slots of a FIFO. Written by the receiver.
struct alignas(kWriterDistance) FifoHead {
  std::atomic<std::uint64_t> released; ///< messages given back so far
  /// The best pace, as pace_of(), at which the messages of the last run of timed ones were emptied.
  std::atomic<std::uint32_t> pace;
  /// Of message n in the n % kPlacesAhead-th.
  alignas(kWriterDistance) std::array<PlaceOffer, kPlacesAhead> offers;
};

/// How a rank is woken. `sleeping` is read by everybody after each message, so the line is shared
/// by all caches until the rank sleeps.
struct alignas(kWriterDistance) Doorbell {
  std::atomic<std::uint32_t> sleeping; ///< the rank wants to be rung
  std::atomic<std::uint32_t> rings;    ///< futex
};

/// One rank's part of the segment.
struct Place {
  alignas(kWriterDistance) std::atomic<std::uint32_t> attached; ///< written by the rank
  std::atomic<std::uint32_t> left;                              ///< … when it destroys, orderly
  std::atomic<std::uint32_t> withdrawn; ///< … after a failure: its memory is not to be touched
  /// Messages of which the rank is reading or writing the payload in memory of another rank.
  /// Written by it, and read after failures only.
  alignas(kWriterDistance) std::atomic<std::uint32_t> touching;
  Doorbell doorbell;
};

/// State of the common verdict.
inline constexpr std::uint32_t kNoVerdict = 0;
inline constexpr std::uint32_t kVerdictBeingWritten = 1;
inline constexpr std::uint32_t kVerdictWritten = 2;

struct SegmentHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t places;
  std::uint32_t channels;
  std::uint32_t slots;
  std::uint64_t slot_bytes;
  std::uint64_t size;
  /// The first rank to give up moves it from kNoVerdict on; it alone writes `text`.
  alignas(kWriterDistance) std::atomic<std::uint32_t> verdict;
  /// Ranks that have left: while it is 0 nobody has to look at all of them.
  std::atomic<std::uint32_t> leavers;
  std::array<char, 1500> text; ///< zero-terminated
};

inline constexpr std::uint64_t kSegmentMagic = 0x314c'524f'4857ULL; // "WHORL1"
inline constexpr std::uint32_t kSegmentVersion = 6;

struct SegmentShape {
  std::uint32_t places = 0; ///< ranks that share the segment
  std::uint32_t channels = 0;
  std::uint32_t slots = 0;      ///< of each FIFO
  std::uint64_t slot_bytes = 0; ///< multiple of 64
};

/// Offsets for one shape. Pure arithmetic.
class SegmentLayout {
 public:
  SegmentLayout() = default;
  /// Fails if a count is zero, `slot_bytes` is no multiple of 64, or the size has no place in an
  /// address space.
  static Result<SegmentLayout> make(const SegmentShape& shape);

  const SegmentShape& shape() const noexcept { return shape_; }
  std::size_t size() const noexcept { return size_; }
  /// Header, places and board: what must be backed by memory from the start.
  std::size_t control_bytes() const noexcept { return control_bytes_; }
  std::size_t place_offset(std::size_t place) const noexcept {
    return places_offset_ + place * sizeof(Place);
  }
  /// See Transport::board(). Whole pages.
  std::size_t board_offset() const noexcept { return board_offset_; }
  std::size_t board_bytes() const noexcept { return control_bytes_ - board_offset_; }
  std::size_t fifo_offset(std::size_t channel, std::size_t from, std::size_t to) const noexcept {
    return control_bytes_ + ((channel * shape_.places + from) * shape_.places + to) * fifo_bytes_;
  }
  /// Memory of one FIFO, whole pages.
  std::size_t fifo_bytes() const noexcept { return fifo_bytes_; }

  /// Fills in the header of a new segment, and compares that of a received one.
  void stamp(SegmentHeader& header) const noexcept;
  Status check(const SegmentHeader& header) const;

 private:
  SegmentShape shape_;
  std::size_t places_offset_ = 0;
  std::size_t board_offset_ = 0;
  std::size_t control_bytes_ = 0;
  std::size_t fifo_bytes_ = 0;
  std::size_t size_ = 0;
};

/// Slots that a ring has memory for: a power of two, so that positions are masked. No more than
/// `slots` of them are in use at any time.
constexpr std::size_t ring_slots(std::size_t slots) noexcept {
  std::size_t ring = 1;
  while (ring < slots) ring *= 2;
  return ring;
}
constexpr std::size_t slot_stride(std::size_t slot_bytes) noexcept {
  return sizeof(SlotHeader) + slot_bytes;
}
/// Memory of one FIFO, whole pages. No overflow with slots up to 2²⁰ of less than 2 GiB.
constexpr std::size_t fifo_size(std::size_t slots, std::size_t slot_bytes) noexcept {
  const std::size_t bytes = sizeof(FifoHead) + ring_slots(slots) * slot_stride(slot_bytes);
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

} // namespace whorl
