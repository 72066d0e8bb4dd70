#include "transports/fifo/layout.h"

#include <fmt/core.h>

#include "base/bytes.h"

namespace whorl {
namespace {

/// Multiplies `value` by `factor`. Returns false if the product does not fit into a size_t.
bool multiply(std::size_t& value, std::size_t factor) noexcept {
  return !__builtin_mul_overflow(value, factor, &value);
}

constexpr std::size_t kLargestSegment = std::size_t{1} << 46; // half of the user address space

} // namespace

Result<SegmentLayout> SegmentLayout::make(const SegmentShape& shape) {
  const auto fail = [&](const char* why) {
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("FIFOs of {} slots of {} bytes for {} ranks on one host and {} channels {}; "
                    "see WHORL_SLOTS, WHORL_SLOT_BYTES and WHORL_MAX_CHANNELS",
                    shape.slots, shape.slot_bytes, shape.ranks, shape.channels, why));
  };
  if (shape.ranks == 0 || shape.channels == 0 || shape.slots == 0) return fail("are empty");
  if (shape.slot_bytes < 64 || shape.slot_bytes % 64 != 0 || shape.slot_bytes >= (1ULL << 30)) {
    return fail("are impossible: a slot is a multiple of 64 bytes, below 1 GiB");
  }
  if (shape.slots > (1U << 20)) return fail("are too many");
  SegmentLayout layout;
  layout.shape_ = shape;
  layout.states_offset_ = round_up(sizeof(SegmentHeader), kWriterDistance);
  layout.control_bytes_ =
      round_up(layout.states_offset_ + std::size_t{shape.ranks} * sizeof(RankState), kPageBytes);
  layout.fifo_ = FifoShape(shape.slots, shape.slot_bytes, shape.long_laps);
  std::size_t size = layout.fifo_.size;
  if (!multiply(size, shape.ranks) || !multiply(size, shape.ranks) ||
      !multiply(size, shape.channels) || size > kLargestSegment - layout.control_bytes_) {
    return fail("do not fit into an address space");
  }
  layout.size_ = layout.control_bytes_ + size;
  return layout;
}

void SegmentLayout::stamp(SegmentHeader& header) const noexcept {
  header.magic = kSegmentMagic;
  header.version = kSegmentVersion;
  header.ranks = shape_.ranks;
  header.channels = shape_.channels;
  header.slots = shape_.slots;
  header.slot_bytes = shape_.slot_bytes;
  header.size = size_;
}

Status SegmentLayout::check(const SegmentHeader& header) const {
  if (header.magic != kSegmentMagic || header.version != kSegmentVersion) {
    return Status::error(
        Code::kInternalError,
        fmt::format("shared memory with magic {:#x} version {}, expected {:#x} version {}; do all "
                    "ranks use the same version of whorl?",
                    header.magic, header.version, kSegmentMagic, kSegmentVersion));
  }
  if (header.ranks != shape_.ranks || header.channels != shape_.channels ||
      header.slots != shape_.slots || header.slot_bytes != shape_.slot_bytes ||
      header.size != size_) {
    return Status::error(
        Code::kInvalidUsage,
        fmt::format("ranks disagree about the FIFOs: {} ranks on this host, {} channels, {} slots "
                    "of {} bytes here, {}, {}, {} and {} at their lowest rank; WHORL_SLOTS, "
                    "WHORL_SLOT_BYTES and WHORL_MAX_CHANNELS must be the same everywhere",
                    shape_.ranks, shape_.channels, shape_.slots, shape_.slot_bytes, header.ranks,
                    header.channels, header.slots, header.slot_bytes));
  }
  return {};
}

} // namespace whorl
