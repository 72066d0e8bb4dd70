#pragma once

// Search for the chunks that a repetition of a step moves (interpret.h), and their addresses.

#include "gpu/pieces.h"
#include "gpu/program.h"

namespace whorl::gpu {
namespace {

/// Finder of the pieces of one block.
class PieceFinder {
 public:
  /// Makes the finder for the program at `base`, whose first bytes are `program`. Elements have
  /// `element` bytes.
  WHORL_HOST_DEVICE PieceFinder(const Launch& launch, const Launch::Rank& rank,
                                const std::byte* base, const Program& program,
                                std::uint32_t instance, std::uint64_t window, std::uint64_t element,
                                BlockMemory& memory)
      : launch_(launch),
        rank_(rank),
        base_(base),
        program_(program),
        instance_(instance),
        window_(window),
        element_(element),
        memory_(memory) {}

  /// Finds the piece of repetition `i` of a step that begins `from` chunks behind the step's first
  /// one: sets `memory.piece` and the addresses of the rank's own operands. Run by one
  /// thread.
  WHORL_HOST_DEVICE void find(const ProgramStep& s, std::uint32_t i, std::uint32_t from) const {
    const bool reads = (s.flags & kReadsSource) != 0;
    const bool reads_target = (s.flags & kReadsTarget) != 0;
    const bool writes = (s.flags & kWritesTarget) != 0;
    const std::uint32_t first = reads ? first_chunk(s.src, s.chunk, s.stride, i) : 0;
    const std::uint32_t first_sink = writes ? first_chunk(s.dst, s.dst_chunk, s.stride, i) : 0;
    Range source{}, sink{};
    const auto look_up = [&](std::uint32_t k) {
      if (reads) source = chunk(s.src, first + k);
      if (writes) sink = chunk(s.dst, first_sink + k);
      return (reads ? source : sink).elements;
    };
    Piece piece;
    piece.sources = s.fan_in + (reads ? 1 : 0) + (reads_target ? 1 : 0);
    piece.destinations = s.fan_out + (writes ? 1 : 0);
    piece.divisor = (s.flags & kAllPresent) != 0 ? launch_.divisor : 1;
    piece.offset = from == 0 ? 0 : memory_.piece.offset + memory_.piece.elements * element_;
    piece.elements = look_up(from);
    const Range begin_source = source, begin_sink = sink;
    piece.behind = from + 1;
    WHORL_DO_NOT_UNROLL
    for (; piece.behind < s.count; ++piece.behind) {
      const std::uint64_t more = look_up(piece.behind);
      const std::uint64_t bytes = piece.elements * element_;
      if (more == 0) continue;
      if ((reads && source.data != begin_source.data + bytes) ||
          (writes && sink.data != begin_sink.data + bytes)) {
        break;
      }
      piece.elements += more;
    }
    if (reads) memory_.sources[s.own_at] = begin_source.data - piece.offset;
    if (reads_target) memory_.sources[0] = begin_sink.data - piece.offset;
    if (writes) memory_.targets[0] = begin_sink.data - piece.offset;
    // Slots begin at multiples of 16 bytes, as offset 0 of the messages does.
    bool whole = true, vectors = true;
    const auto look_at = [&](bool used, const std::byte* data) {
      const auto zero = reinterpret_cast<std::uintptr_t>(data) - piece.offset;
      whole = whole && (!used || zero % element_ == 0);
      vectors = vectors && (!used || zero % kVectorBytes == 0);
    };
    const bool local = s.fan_in + s.fan_out == 0; // then equal alignment is enough
    if (local && reads && writes &&
        static_cast<std::uint64_t>(begin_source.data - begin_sink.data) % kVectorBytes == 0) {
      whole = reinterpret_cast<std::uintptr_t>(begin_sink.data) % element_ == 0;
    } else {
      look_at(reads, begin_source.data);
      look_at(writes, begin_sink.data);
    }
    piece.access = !whole     ? Segment::Access::kByte
                   : !vectors ? Segment::Access::kElement
                              : Segment::Access::kVector;
    memory_.piece = piece;
  }

 private:
  struct Range {
    std::byte* data;
    std::uint64_t elements;
  };

  /// Returns a chunk, as ChunkMap::range() does.
  WHORL_HOST_DEVICE Range chunk(ProgramBuffer buffer, std::uint32_t index) const {
    const bool scratch = buffer == ProgramBuffer::kScratch;
    const std::uint32_t stands_for =
        scratch ? reinterpret_cast<const std::uint16_t*>(base_ + program_.scratch_at)[index]
                : index;
    const std::uint32_t per_block = launch_.chunks_per_block;
    const std::uint32_t block = stands_for < per_block ? 0 : stands_for / per_block; // mostly 0
    const std::uint64_t first =
        window_ * launch_.window + (stands_for - block * per_block) * launch_.chunk;
    const std::uint64_t begin = first < launch_.count ? first : launch_.count;
    const std::uint64_t behind = first + launch_.chunk;
    const std::uint64_t size = (behind < launch_.count ? behind : launch_.count) - begin;
    if (scratch) {
      return {rank_.scratch + instance_ * launch_.scratch_bytes + index * launch_.chunk * element_,
              size};
    }
    std::byte* const data = buffer == ProgramBuffer::kInput
                                ? const_cast<std::byte*>(rank_.input) // only read
                                : rank_.output;
    return {data + (block * launch_.count + begin) * element_, size};
  }

  WHORL_HOST_DEVICE std::uint32_t first_chunk(ProgramBuffer buffer, std::uint32_t first,
                                              std::int32_t stride, std::uint32_t i) const {
    if (i == 0) return first;
    const std::int32_t chunks = buffer == ProgramBuffer::kInput    ? program_.input_chunks
                                : buffer == ProgramBuffer::kOutput ? program_.output_chunks
                                                                   : program_.scratch_chunks;
    const std::int32_t index =
        (static_cast<std::int32_t>(first) + stride * static_cast<std::int32_t>(i)) % chunks;
    return static_cast<std::uint32_t>(index < 0 ? index + chunks : index);
  }

  const Launch& launch_;
  const Launch::Rank& rank_;
  const std::byte* base_;
  const Program& program_;
  const std::uint32_t instance_;
  const std::uint64_t window_;
  const std::uint64_t element_;
  BlockMemory& memory_;
};

} // namespace
} // namespace whorl::gpu
