#pragma once

// Moving of one piece of a message by the threads of an interpreter's block (interpret.h): from all
// operands to all targets in one pass, with the loops of combine.h.

#include "gpu/combine.h"
#include "gpu/fifo_layout.h"

namespace whorl::gpu {
namespace {

/// Chunks that are contiguous in the source and in the target of a step, with their part of the
/// messages.
struct Piece {
  std::int32_t sources, destinations;
  std::int32_t divisor;
  Segment::Access access;
  std::uint64_t offset; ///< offset in the messages, in bytes
  std::uint64_t elements;
  std::uint32_t behind; ///< number of chunks of the step before the next piece
};

/// Counts of messages to and from a peer.
struct Counts {
  std::uint64_t sent, taken;
};

/// Memory that the threads of a block share.
struct BlockMemory {
  // Addresses of offset 0 of the messages, by place among the operands and targets.
  const std::byte* sources[kMaxRanks + 1];
  std::byte* targets[kMaxRanks + 1];
  Piece piece;
  // By rank: what has been waited for and what has been published, each known to one thread, and
  // how many of the messages sent the peer is known to have taken.
  Counts awaited[kMaxRanks], published[kMaxRanks];
  std::uint64_t credits[kMaxRanks];
  std::uint8_t peers[2 * kMaxRanks]; ///< ranks by place among the lane's peers
};

/// Tells the compiler that an address stored in the memory of a block is not in that memory:
/// accesses get shorter, and values read from there need not be read again after each access.
template <class T>
WHORL_HOST_DEVICE T* on_device(T* data) {
#ifdef __CUDA_ARCH__
  __builtin_assume(__isGlobal(data));
#endif
  return data;
}

/// Operands of a piece. 0: as many as the piece says.
template <int kSources>
class PieceOperands {
 public:
  WHORL_HOST_DEVICE explicit PieceOperands(const BlockMemory& memory)
      : memory_(memory), offset_(memory.piece.offset), elements_(memory.piece.elements) {
    for (int k = 0; k < kSources; ++k) sources_[k] = on_device(memory.sources[k] + offset_);
  }
  WHORL_HOST_DEVICE int sources() const {
    if constexpr (kSources > 0) return kSources;
    return memory_.piece.sources;
  }
  WHORL_HOST_DEVICE int destinations() const { return memory_.piece.destinations; }
  WHORL_HOST_DEVICE const std::byte* source(int k) const {
    if constexpr (kSources > 0) return on_device(sources_[k]);
    return on_device(memory_.sources[k] + offset_);
  }
  WHORL_HOST_DEVICE std::byte* destination(int k) const {
    return on_device(memory_.targets[k] + offset_);
  }
  WHORL_HOST_DEVICE std::uint64_t count() const { return elements_; }
  WHORL_HOST_DEVICE std::int32_t divisor() const { return memory_.piece.divisor; }
  /// Returns the alignment of the addresses. With two operands it is known: the code for rare cases
  /// is left out.
  WHORL_HOST_DEVICE Segment::Access access() const {
    if constexpr (kSources == 2) return Segment::Access::kVector;
    return memory_.piece.access;
  }

 private:
  const BlockMemory& memory_;
  const std::uint64_t offset_, elements_;
  const std::byte* sources_[kSources > 0 ? kSources : 1];
};

/// Copies a piece of elements of type T bit by bit; combining could change the bits.
template <class T>
WHORL_HOST_DEVICE void copy_piece(const BlockMemory& memory, Lane threads) {
  const PieceOperands<1> operands(memory);
  Combine<Plain<T>, kernels::Max, false, true, PieceOperands<1>>(operands).run(threads);
}

template <class Reduction>
WHORL_HOST_DEVICE void combine_piece(const BlockMemory& memory, Lane threads) {
  using Format = typename Reduction::Format;
  using Function = typename Reduction::Function;
  constexpr bool kMayDivide = Reduction::kMayDivide;
  if (memory.piece.sources == 2 && memory.piece.access == Segment::Access::kVector) {
    const PieceOperands<2> operands(memory);
    Combine<Format, Function, kMayDivide, true, PieceOperands<2>>(operands).run(threads);
  } else {
    const PieceOperands<0> operands(memory);
    Combine<Format, Function, kMayDivide, false, PieceOperands<0>>(operands).run(threads);
  }
}

} // namespace
} // namespace whorl::gpu
