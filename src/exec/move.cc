#include "exec/move.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace whorl {
namespace {

/// Bytes that are moved to all targets before the next bytes: targets and sources of a block stay
/// in a first-level cache of 32 KiB. Smaller: more calls. A multiple of every element's size.
constexpr std::size_t kBlock = 4096;
constexpr std::size_t kLine = 64;
/// Bytes of a result that goes past the caches only. Smaller than kBlock, because a core reads the
/// next sources from memory while it stores a block only if both are among the instructions that it
/// looks ahead at.
constexpr std::size_t kStreamedBlock = 256;

Target behind(const Target& target, std::size_t offset) noexcept {
  return {target.data + offset, target.nontemporal};
}

} // namespace

MoveKernels kernels_of(DataType type, ReduceOp op, int ranks, bool at_once, Simd simd) noexcept {
  MoveKernels kernels{.reduce = reduce_kernel(type, op, simd),
                      .nontemporal_copy = nontemporal_copy(simd),
                      .vector_copy = vector_copy(simd),
                      .element_size = size_of(type)};
  if (op != ReduceOp::kAvg || ranks == 1) return kernels;
  kernels.averaging = ranks;
  if (at_once || !is_float(type)) return kernels;
  const AverageScale scale = average_scale(type, ranks);
  kernels.averaging.scaled = scale.k;
  kernels.scale = scale_kernel(type, simd);
  kernels.factor = scale.factor;
  return kernels;
}

void detail::reduce_into_all(const MoveKernels& kernels, std::span<const void*> sources,
                             std::span<const Target> targets, std::size_t bytes,
                             Averaging averaging) noexcept {
  // The result is made in a target that may stay in the cache, and copied to the others from there.
  alignas(64) std::array<std::byte, kBlock> block;
  const auto first = std::find_if(targets.begin(), targets.end(),
                                  [](const Target& target) { return !target.nontemporal; });
  const std::size_t step = first != targets.end() ? kBlock : kStreamedBlock;
  // The first block ends with a line of the first target, so that each line is in one block.
  const std::size_t before = reinterpret_cast<std::uintptr_t>(targets[0].data) % kLine /
                             kernels.element_size * kernels.element_size;
  std::size_t size = std::min(step - before, bytes);
  for (std::size_t offset = 0; offset < bytes;
       offset += size, size = std::min(step, bytes - offset)) {
    std::byte* const result = first != targets.end() ? first->data + offset : block.data();
    reduce(kernels, sources, result, size, averaging);
    for (const Target& target : targets) copy(kernels, result, behind(target, offset), size);
    for (const void*& source : sources) source = static_cast<const std::byte*>(source) + size;
  }
}

void detail::copy_into_all(const MoveKernels& kernels, const std::byte* source,
                           std::span<const Target> targets, std::size_t bytes,
                           SourceIn place) noexcept {
  for (std::size_t offset = 0; offset < bytes; offset += kBlock) {
    const std::size_t size = std::min(kBlock, bytes - offset);
    for (const Target& target : targets) {
      copy(kernels, source + offset, behind(target, offset), size, place);
    }
  }
}

void reduce_scaled_into(const MoveKernels& kernels, std::span<const void*> sources,
                        std::size_t input, std::span<const Target> targets, std::size_t bytes,
                        Averaging averaging) noexcept {
  alignas(64) std::array<std::byte, kBlock> scaled, reduced;
  // Of several targets, and of those beyond the caches, each gets a copy of the result.
  const bool direct = targets.size() == 1 && !targets[0].nontemporal;
  const auto* const from = static_cast<const std::byte*>(sources[input]);
  for (std::size_t offset = 0; offset < bytes; offset += kBlock) {
    const std::size_t size = std::min(kBlock, bytes - offset);
    kernels.scale(from + offset, scaled.data(), size / kernels.element_size,
                  kernels.factor.bytes.data());
    sources[input] = scaled.data();
    std::byte* const result = direct ? targets[0].data + offset : reduced.data();
    detail::reduce(kernels, sources, result, size, averaging);
    if (!direct) {
      for (const Target& target : targets) {
        detail::copy(kernels, result, behind(target, offset), size);
      }
    }
    for (const void*& source : sources) source = static_cast<const std::byte*>(source) + size;
  }
}

void copy_scaled_into(const MoveKernels& kernels, const std::byte* source,
                      std::span<const Target> targets, std::size_t bytes) noexcept {
  alignas(64) std::array<std::byte, kBlock> scaled;
  const bool direct = targets.size() == 1 && !targets[0].nontemporal;
  for (std::size_t offset = 0; offset < bytes; offset += kBlock) {
    const std::size_t size = std::min(kBlock, bytes - offset);
    std::byte* const result = direct ? targets[0].data + offset : scaled.data();
    kernels.scale(source + offset, result, size / kernels.element_size,
                  kernels.factor.bytes.data());
    if (direct) continue;
    for (const Target& target : targets) {
      detail::copy(kernels, result, behind(target, offset), size);
    }
  }
}

} // namespace whorl
